"""What the site does besides what mkdocs does: pages not there yet are left out, recorded figures are taken along."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File


def on_config(config: Any) -> Any:
    """Drop entries of the navigation without a page, and sections without entries."""
    config.nav = _present(config.nav, Path(config.docs_dir))
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pictures in results/, which stand beside the figures they were drawn from."""
    root = Path(config.docs_dir).parent
    for path in sorted((root / "results").rglob("*.png")):
        files.append(File.generated(config, path.relative_to(root).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Lead to them inside the site."""
    return re.sub(r"\]\(\.\./((?:\.\./)*results/)", r"](\1", markdown)


def _present(nav: list[Any], docs: Path) -> list[Any]:
    found = []
    for entry in nav:
        ((title, target),) = entry.items()
        if isinstance(target, list):
            target = _present(target, docs)
        if target and (isinstance(target, list) or (docs / target).exists()):
            found.append({title: target})
    return found
