"""Run folders: where everything a run makes is kept."""

from skyfed.runs.folder import RunFolder, write_whole

__all__ = ["RunFolder", "write_whole"]
