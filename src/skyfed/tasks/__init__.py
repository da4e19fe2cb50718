"""What is learnt: pictures, or a task of one's own."""

from pydantic import Field, PositiveFloat, field_validator

from skyfed.errors import BadInputError, own_code
from skyfed.files import from_home
from skyfed.imports import check_path, import_path
from skyfed.settings import StrictSettings
from skyfed.tasks import folder, synthetic
from skyfed.tasks.cache import Pictures, Progress, data_folder, load_pictures
from skyfed.tasks.drift import DriftSettings
from skyfed.tasks.task import Samples, Task, check_task


class DataSettings(StrictSettings):
    """Which data, where it lies, and how it is spread over the vehicles."""

    name: str = Field(
        "cifar10",
        description="cifar10, synthetic, folder:PATH (a directory of class folders), or a function that returns a "
        "task of your own: package.module:load or file.py:load",
    )
    dir: str | None = Field(None, description="where data lies; else SKYFED_DATA, else the user's cache folder")
    size: int = Field(32, ge=8, le=512, description="side of a picture in pixels, for folder:")
    dirichlet: PositiveFloat | None = Field(
        None,
        description="label skew: each place's samples are shared out over the vehicles by a Dirichlet draw with this "
        "parameter; small is uneven; none shares them out evenly",
    )

    drift: DriftSettings = DriftSettings()

    @property
    def own(self) -> bool:
        """Whether a function of the user's own gives the task."""
        return ":" in self.name and not self.name.startswith("folder:")

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if name in ("cifar10", "synthetic") or (name.startswith("folder:") and len(name) > 7):
            return name
        if ":" not in name or name.startswith("folder:"):
            raise ValueError("allowed: cifar10, synthetic, folder:PATH, package.module:load, file.py:load")
        return check_path(name)


def load_task(settings: DataSettings, progress: Progress = lambda *_: None) -> Task:
    """Return the task that the settings name; raises BadInputError with the ways out where it is not there."""
    if settings.own:
        loader = import_path(settings.name, "data.name")
        with own_code(f"data.name = {settings.name!r}", BadInputError):
            task = loader()
        return check_task(task, settings.name)
    if settings.name == "synthetic":
        return synthetic.generate().task()
    where = data_folder(settings.dir)
    if settings.name == "cifar10":
        path = where / "cifar10.safetensors"
        if not path.exists():
            raise BadInputError(
                f'data.name = "cifar10": not in {where}; fetch it with `skyfed data get cifar10`, point SKYFED_DATA at '
                "it, or use --set data.name=synthetic"
            )
        return load_pictures(path).task()
    root = from_home(settings.name.removeprefix("folder:"))
    return folder.load_folder(root, settings.size, where, progress).task()


__all__ = ["DataSettings", "Pictures", "Samples", "Task", "data_folder", "load_task"]
