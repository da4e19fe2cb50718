"""The notebook runs from its first cell to its last."""

import json
import os
import subprocess
import sys
from pathlib import Path

NOTEBOOK = Path(__file__).parents[1] / "examples" / "tour.ipynb"
EXECUTE = """
import sys, nbformat
from nbclient import NotebookClient
book = nbformat.read(sys.argv[1], 4)
NotebookClient(book, timeout=None, kernel_name="python3", resources={"metadata": {"path": "."}}).execute()
nbformat.write(book, "done.ipynb")
"""
QUICKLY = """
from skyfed import api, workers

workers.usable_cores = lambda: 1  # a tiny run takes less time than new processes
api.draw_run = lambda *_: None  # the figures that are shown are drawn by their cells
"""


def test_it_is_kept_without_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert all(not cell.get("outputs") and not cell.get("execution_count") for cell in cells)


def test_tour_runs(tmp_path: Path) -> None:
    environment = {**os.environ, "IPYTHONDIR": str(tmp_path), "JUPYTER_PLATFORM_DIRS": "1"}
    startup = tmp_path / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "quickly.py").write_text(QUICKLY)
    command = [sys.executable, "-c", EXECUTE, str(NOTEBOOK)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    cells = json.loads((tmp_path / "done.ipynb").read_text())["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 3  # without %matplotlib inline
    lines = [output["data"]["text/plain"] for output in outputs if "text/html" in output.get("data", {})]
    assert ["".join(text).count("10/10") for text in lines] == [3, 1]  # one output a run, replaced until the end
    assert all("done" in "".join(text) for text in lines)
    assert (tmp_path / "tour" / "compare.html").stat().st_size > 1_000_000
