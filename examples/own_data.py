"""Pictures of one's own: makes a small folder of them, trains on it, and tests the model on a picture that is new.

    python own_data.py my-pictures

A folder has one subfolder a class (a sixth is kept for testing), or train/ and test/ with such subfolders. Any size and
the usual formats will do; `data.size` says what they are resized to. From the command line the same is

    skyfed run smoke --set data.name=folder:my-pictures --set data.size=16 --set field.classes=3
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image

import skyfed
from skyfed.report.score import score_models

CLASSES = {"field": (90, 140, 60), "roof": (170, 90, 70), "water": (60, 90, 150)}


def photograph(colour: tuple[int, int, int], rng: np.random.Generator) -> Image.Image:
    """Return a noisy picture of one colour; yours come from a camera."""
    return Image.fromarray(np.clip(rng.normal(colour, 60, (40, 48, 3)), 0, 255).astype(np.uint8))


def main(place: Path) -> None:
    """Make the pictures, train, test."""
    rng = np.random.default_rng(0)
    for name, colour in CLASSES.items():
        (place / name).mkdir(parents=True, exist_ok=True)
        for k in range(120):
            photograph(colour, rng).save(place / name / f"{k:03}.png")
    run = skyfed.run(
        "smoke",
        out=place.with_name(f"{place.name}-run"),
        progress=False,
        data={"name": f"folder:{place}", "size": 16},
        field={"classes": 3},
        sensing={"initial": 60, "initial_test": 20, "n_max": 20},
        algorithms=["2ceoafl"],
        rounds=6,
        vehicles=2,
        workers=1,
    )
    (place.with_name("new") / "water").mkdir(parents=True, exist_ok=True)
    photograph(CLASSES["water"], rng).save(place.with_name("new") / "water" / "one.png")
    for folder in (None, place.with_name("new")):  # the run's own test pictures; others
        (score,) = score_models(run.folder, None, folder)
        print(f"{score.samples} pictures, {100 * score.accuracy:.0f} % right")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "my-pictures").resolve())
