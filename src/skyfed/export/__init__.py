"""A run's trained models as files that other programs load without skyfed."""
