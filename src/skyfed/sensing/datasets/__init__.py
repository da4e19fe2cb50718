"""The pictures vehicles sense: cifar10, a user's folder, or generated ones."""

from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator

from skyfed.sensing.datasets import cifar10, folder, synthetic
from skyfed.sensing.datasets.cache import Pictures, data_folder, load_pictures

Progress = Callable[[str, int, int], None]


class DataSettings(BaseModel):
    """Which pictures, and where they lie."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field("cifar10", description="cifar10, synthetic, or folder:PATH (a directory of class folders)")
    dir: str | None = Field(None, description="where data lies; else SKYFED_DATA, else the user's cache folder")
    size: int = Field(32, ge=8, le=512, description="side of a picture in pixels, for folder:")

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in ("cifar10", "synthetic") and not (name.startswith("folder:") and len(name) > 7):
            raise ValueError("allowed: cifar10, synthetic, folder:PATH")
        return name


def load_data(settings: DataSettings, progress: Progress = lambda *_: None) -> Pictures:
    """Return the pictures the settings name; raises BadInputError with the ways out where they are not there."""
    where = data_folder(settings.dir)
    if settings.name == "synthetic":
        return synthetic.generate()
    if settings.name == "cifar10":
        path = where / "cifar10.safetensors"
        if not path.exists():
            raise cifar10.missing(where)
        return load_pictures(path)
    return folder.load_folder(Path(settings.name.removeprefix("folder:")).expanduser(), settings.size, where, progress)


__all__ = ["DataSettings", "Pictures", "data_folder", "load_data"]
