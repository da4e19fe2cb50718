"""Who carries the bytes."""
