"""The wheel: holds all that belongs to the package, and declares all that the package imports."""

import ast
import re
import subprocess
import sys
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "skyfed"
# what only an extra brings, and the only files that may know it
OPTIONAL = {
    "flwr": "fleet", "cryptography": "fleet", "httpx": "fleet", "starlette": "fleet", "uvicorn": "fleet",
    "polars": "frames", "pandas": "frames", "pyscipopt": "scip",
    "onnxruntime": "export", "mlflow": "track", "tensorboard": "track", "wandb": "track", "optuna": "tune",
}  # fmt: skip
KNOW_THEM = re.compile(r"api\.py|export/formats\.py|drivers/flower/|flight/scip\.py|track/|drivers/optuna_search\.py")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    place = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (path,) = place.glob("*.whl")
    return zipfile.ZipFile(path)


def metadata(wheel: zipfile.ZipFile) -> str:
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    return wheel.read(name).decode()


def declared(wheel: zipfile.ZipFile, extra: str | None = None) -> set[str]:
    """Return the distributions that an installation without extras brings, or those of an extra."""
    found = set()
    for line in re.findall(r"^Requires-Dist: (.*)$", metadata(wheel), re.MULTILINE):
        marker = re.search(r"extra == '(\w+)'", line)
        if (marker[1] if marker else None) == extra:
            found.add(normal(re.match(r"[\w.-]+", line)[0]))
    return found


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def imports(path: Path) -> set[str]:
    """Return the packages a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - {"skyfed"}


def test_all_of_the_package_and_nothing_else_is_in_the_wheel(wheel):
    ours = {
        f"skyfed/{path.relative_to(SOURCE)}"
        for path in SOURCE.rglob("*")
        if path.is_file() and path.suffix != ".pyc" and "__pycache__" not in path.parts
    }
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert held == ours
    assert {"skyfed/py.typed", "skyfed/presets/quick.toml", "skyfed/presets/paper.toml"} <= held


def test_the_wheel_names_its_command_licence_and_extras(wheel):
    names = {Path(name).name: name for name in wheel.namelist() if ".dist-info/" in name}
    assert "skyfed = skyfed.__main__:main" in wheel.read(names["entry_points.txt"]).decode()
    assert "LICENSE" in names
    said = metadata(wheel)
    for extra in ("fleet", "scip", "track", "tune"):
        assert f"Provides-Extra: {extra}" in said
        assert declared(wheel, extra)


def test_declared_dependencies_cover_every_import(wheel):
    known, distributions = declared(wheel), packages_distributions()
    for path in sorted(SOURCE.rglob("*.py")):
        where = str(path.relative_to(SOURCE))
        for package in imports(path):
            if package in OPTIONAL:
                assert KNOW_THEM.match(where), f"{where} imports {package}"
                continue
            assert {normal(name) for name in distributions[package]} & known, f"{where} imports {package}"


def test_what_is_declared_is_imported(wheel):
    """Nothing is installed for everybody that nobody uses."""
    used = {package for path in SOURCE.rglob("*.py") for package in imports(path)}
    distributions = packages_distributions()
    needed = {normal(name) for package in used for name in distributions.get(package, [])}
    assert declared(wheel) <= needed


def test_every_extra_brings_what_it_is_for(wheel):
    distributions = packages_distributions()
    for package, extra in OPTIONAL.items():
        if package in distributions:
            assert {normal(name) for name in distributions[package]} & declared(wheel, extra), package


def test_every_declared_version_is_pinned(wheel):
    pinned = {normal(line.partition("==")[0]) for line in (ROOT / "constraints.txt").read_text().splitlines()}
    for extra in (None, "docs", "fleet", "scip", "track", "tune", "dev"):
        assert declared(wheel, extra) - {"skyfed"} <= pinned
