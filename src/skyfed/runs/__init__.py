"""Run folders: where everything a run makes is kept."""
