"""Keeps the columns of docstrings on the site: a paragraph with aligned columns is shown as it is written."""

import re
from typing import Any

import griffe

_COLUMNS = re.compile(r"\S {2,}\S")


class Columns(griffe.Extension):
    """Fences paragraphs that have a run of spaces inside a line."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of whatever was read."""
        if obj.docstring is not None:
            paragraphs = obj.docstring.value.split("\n\n")
            obj.docstring.value = "\n\n".join(_shown(paragraph) for paragraph in paragraphs)


def _shown(paragraph: str) -> str:
    return f"```text\n{paragraph}\n```" if _COLUMNS.search(paragraph) else paragraph
