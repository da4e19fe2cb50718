"""Constraints on flights: what one is, the paper's own, and those that a user brings as a file."""
