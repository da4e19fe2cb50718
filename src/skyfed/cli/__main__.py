"""python -m skyfed.cli."""

from skyfed.cli import main

main()
