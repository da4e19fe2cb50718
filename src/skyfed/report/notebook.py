"""Notebooks: progress as one output that is replaced, and figures as pictures, without widgets."""

import sys
from html import escape
from importlib import import_module
from io import BytesIO
from typing import Any


def notebook() -> Any:
    """Return the session of the notebook that runs this; None outside of one."""
    loaded = sys.modules.get("IPython")
    shell = loaded.get_ipython() if loaded else None
    return shell if getattr(shell, "kernel", None) is not None else None


class NotebookOutput:
    """One output of a cell, whose text is replaced."""

    def __init__(self) -> None:
        # IPython is no dependency: whoever has a notebook has it
        publish_display_data = import_module("IPython.display").publish_display_data

        self._publish: Any = publish_display_data
        self._id, self._shown = f"skyfed-{id(self)}", False

    def show(self, text: str) -> None:
        """Show this text in place of what was shown before."""
        lines = {"text/plain": text, "text/html": f'<pre style="line-height: 1.2">{escape(text)}</pre>'}
        self._publish(lines, transient={"display_id": self._id}, update=self._shown)
        self._shown = True


def show_figures_inline() -> None:
    """Let the notebook show figures as pictures, unless the user has chosen how they are shown."""
    shell = notebook()
    if shell is None:
        return
    from matplotlib.figure import Figure

    pictures = shell.display_formatter.formatters["image/png"]
    if Figure not in pictures:
        pictures.for_type(Figure, _as_png)


def _as_png(figure: Any) -> bytes:
    picture = BytesIO()
    figure.savefig(picture, format="png", dpi=144)
    return picture.getvalue()
