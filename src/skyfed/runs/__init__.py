"""Run folders: where everything a run makes is kept."""

from skyfed.runs.folder import RunFolder

__all__ = ["RunFolder"]
