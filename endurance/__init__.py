"""Faults done to real processes, and what has to hold all the same; `python -m endurance --help`."""
