"""Import what a user names: "package.module:name" or "path/to/file.py:name"."""

import hashlib
import importlib
import importlib.util
import os
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from skyfed.errors import BadInputError, own_code
from skyfed.files import from_home

OWN = "package.module:name or file.py:name"  # how a user names what is their own
_DOTTED = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*"


def check_path(name: str) -> str:
    """Return an import path that is well formed; raises ValueError else. Nothing is imported."""
    module, _, attribute = name.rpartition(":")
    dotted = re.fullmatch(_DOTTED, module) is not None
    file = module.endswith(".py") and "\0" not in module
    if not (dotted or file) or not re.fullmatch(r"[A-Za-z_]\w*", attribute):
        raise ValueError(f"allowed: {OWN}")
    return name


def absolute_path(name: str, base: Path) -> str:
    """Make the file of an import path absolute; a dotted path stays as it is."""
    module, colon, attribute = name.rpartition(":")
    if not colon or not module.endswith(".py") or "\0" in module:
        return name
    return f"{(base / from_home(module)).resolve()}:{attribute}"


def import_path(name: str, setting: str) -> Any:
    """Return what an import path names; raises BadInputError in one line for whatever goes wrong."""
    module, _, attribute = name.rpartition(":")
    with own_code(f"{setting} = {name!r}", BadInputError):  # whatever a module does when it is imported
        check_path(name)
        source = _from_file(Path(module)) if module.endswith(".py") else _from_path(module)
    if not hasattr(source, attribute):
        own = [key for key, value in vars(source).items() if getattr(value, "__module__", "") == source.__name__]
        raise BadInputError(f"{setting} = {name!r}: no {attribute!r} there; it defines {', '.join(own) or 'nothing'}")
    return getattr(source, attribute)


def _from_path(module: str) -> ModuleType:
    """Import a module, which may be in the present folder; nothing else is looked for there."""
    if not module.startswith("skyfed.") and (here := os.getcwd()) not in sys.path:
        sys.path.append(here)
    return importlib.import_module(module)


def _from_file(path: Path) -> ModuleType:
    """Import a file under a name of its own: once per process, and again when its content has changed."""
    path = from_home(str(path)).resolve()
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    name = f"skyfed_user_{path.stem}_{hashlib.sha256(bytes(path) + path.read_bytes()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
