"""Configs that come with the package; the first line of each says what it is."""

from importlib import resources

DEFAULT = "quick"


def describe() -> dict[str, str]:
    """Names of the presets with their one-line descriptions, the default first."""
    lines = {}
    for entry in resources.files(__name__).iterdir():
        if entry.name.endswith(".toml"):
            first = entry.read_text(encoding="utf-8").splitlines()[0]
            lines[entry.name.removesuffix(".toml")] = first.removeprefix("#").strip()
    return dict(sorted(lines.items(), key=lambda item: (item[0] != DEFAULT, item[0])))
