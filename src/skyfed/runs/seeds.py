"""Several seeds of one config: one folder per seed under a common one."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from skyfed.config import Config
from skyfed.errors import BadInputError
from skyfed.files import drop_dead_parts, is_part, storage_errors
from skyfed.runs.folder import RunFolder, entries

_MOST = 1000


def parse_seeds(text: str) -> list[int]:
    """Read "0-4" or "0,3,7-9"."""
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,18})(?:-(\d{1,18}))?\s*", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last < first + _MOST:
            raise BadInputError(f'--seeds {text!r}: allowed: as "0-4" or "0,3,7", {_MOST} at most')
        seeds += range(first, last + 1)
    if len(set(seeds)) < len(seeds) or len(seeds) > _MOST:
        raise BadInputError(f"--seeds {text!r}: allowed: each once, {_MOST} at most")
    return seeds


def claim_seeds(place: Path, config: Config, seeds: list[int], command: Sequence[str]) -> None:
    """Give every seed its folder with its config, so that `resume` knows them all; other content is refused."""
    allowed = "allowed with --seeds: a new or empty folder, or these seeds' own"
    known = {*(f"seed-{seed}" for seed in seeds), "figures", "report.html"}
    strangers = [name for name in entries(place, allowed) if name not in known and not is_part(name)]
    if strangers:
        raise BadInputError(f"--out {place}: holds {strangers[0]}; {allowed}")
    drop_dead_parts(place)
    for seed in seeds:
        with RunFolder.claim(place / f"seed-{seed}", config.model_copy(update={"seed": seed}), command):
            pass


def seed_folders(place: Path) -> list[Path]:
    """Return the folders of the seeds below a common one, in order; none where it is a run itself."""
    if (place / "config.toml").is_file():
        return []
    with storage_errors(place):
        return by_seed(path.parent for path in place.glob("seed-*/config.toml"))


def by_seed(paths: Iterable[Path]) -> list[Path]:
    """Return those of these paths that are named as folders of seeds, in the order of the seeds."""
    named = [path for path in paths if path.name.startswith("seed-") and path.name[5:].isdecimal()]
    return sorted(named, key=lambda path: int(path.name[5:]))
