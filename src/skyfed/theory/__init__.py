"""Theorem 1: its bound for a round or a run, and the constants in it, estimated from a live run."""
