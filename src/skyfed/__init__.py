"""Online federated learning on aerial vehicles."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skyfed.algorithms.base import Algorithm as Algorithm
    from skyfed.api import Run as Run
    from skyfed.api import load as load
    from skyfed.api import plan as plan
    from skyfed.api import run as run
    from skyfed.api import table as table
    from skyfed.columns import Column as Column
    from skyfed.tasks import Samples as Samples
    from skyfed.tasks import Task as Task
    from skyfed.types import Model as Model
    from skyfed.wire import MODEL as MODEL
    from skyfed.world import World as World

__version__ = "0.1.0"

# what others build on: name → module; imported on use, so that `import skyfed` is quick
_PUBLIC = {
    "Algorithm": "skyfed.algorithms.base",
    **dict.fromkeys(["Run", "load", "plan", "run", "table"], "skyfed.api"),
    "Column": "skyfed.columns",
    "MODEL": "skyfed.wire",
    "Model": "skyfed.types",
    **dict.fromkeys(["Samples", "Task"], "skyfed.tasks"),
    "World": "skyfed.world",
}
__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'skyfed' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
