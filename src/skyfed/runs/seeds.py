"""Several seeds of one config: a folder each under a common one."""

import re
from collections.abc import Sequence
from pathlib import Path

from skyfed.config import Config
from skyfed.errors import BadInputError
from skyfed.files import drop_dead_parts, is_part, storage_errors
from skyfed.runs.folder import RunFolder

_MOST = 1000


def parse_seeds(text: str) -> list[int]:
    """Read "0-4" or "0,3,7-9"."""
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,18})(?:-(\d{1,18}))?\s*", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last < first + _MOST:
            raise BadInputError(f'--seeds {text!r}: allowed: as "0-4" or "0,3,7", {_MOST} at most')
        found += range(first, last + 1)
    if len(set(found)) < len(found) or len(found) > _MOST:
        raise BadInputError(f"--seeds {text!r}: allowed: each once, {_MOST} at most")
    return found


def claim_seeds(place: Path, config: Config, seeds: list[int], command: Sequence[str]) -> None:
    """Give every seed its folder with its config, so that `resume` knows them all; other content is refused."""
    names = [f"seed-{seed}" for seed in seeds]
    with storage_errors(place):
        found = {entry.name for entry in place.iterdir() if not is_part(entry.name)} if place.is_dir() else set()
    strangers = found - set(names) - {"figures", "report.html"}
    if strangers or (place.exists() and not place.is_dir()):
        what = f"holds {sorted(strangers)[0]}" if strangers else "is a file"
        raise BadInputError(f"--out {place}: {what}; allowed with --seeds: a new or empty folder, or these seeds' own")
    drop_dead_parts(place)
    for seed, name in zip(seeds, names, strict=True):
        with RunFolder.claim(place / name, config.model_copy(update={"seed": seed}), command):
            pass


def seed_folders(place: Path) -> list[Path]:
    """Return the folders of the seeds below a common one, in order; none where it is a run itself."""
    if (place / "config.toml").is_file():
        return []
    with storage_errors(place):
        found = [path.parent for path in place.glob("seed-*/config.toml") if path.parent.name[5:].isdigit()]
    return sorted(found, key=lambda path: int(path.name[5:]))
