"""What the site does besides what mkdocs does: pages that are not there yet are left out of the navigation."""

from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    """Drop entries without a page, and sections without entries."""
    config.nav = _present(config.nav, Path(config.docs_dir))
    return config


def _present(nav: list[Any], docs: Path) -> list[Any]:
    found = []
    for entry in nav:
        ((title, target),) = entry.items()
        if isinstance(target, list):
            target = _present(target, docs)
        if target and (isinstance(target, list) or (docs / target).exists()):
            found.append({title: target})
    return found
