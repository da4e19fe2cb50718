"""Nothing is unpickled, nothing that was read is executed, nothing asks the network: by hooks and by the sources."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from endurance.stage import LONG, Row, arguments, run_part, workshop

SOURCES = Path(__file__).parents[1] / "src" / "skyfed"
HOOK = """
import os, sys
from importlib.util import find_spec

LOG = os.environ["ENDURANCE_AUDIT"]
# the folder this process takes the package from; a path may say skyfed elsewhere, as that of a clone does
PACKAGE = find_spec("skyfed").submodule_search_locations[0] + os.sep
with open(LOG + ".hooked", "a") as seen:
    seen.write(" ".join(sys.orig_argv)[:500] + "\\n")
EVENTS = ("pickle.find_class", "socket.", "urllib.Request", "http.client.", "ftplib.", "smtplib.", "os.system")

def hook(event, arguments):
    said = None
    if event.startswith(EVENTS) and event != "socket.gethostname":
        said = f"{event} {arguments!r}"
    elif event in ("exec", "compile", "marshal.loads", "code.__new__"):
        frame = sys._getframe()
        frame = frame.f_back
        if frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
            said = f"{event} in {frame.f_code.co_filename}:{frame.f_lineno}"
    if said:
        with open(LOG, "a") as log:
            log.write(said[:300] + "\\n")

sys.addaudithook(hook)
"""
CONTROL = """
import pickle, socket
from importlib.util import find_spec

pickle.loads(pickle.dumps(len))
socket.socket().close()
inside = find_spec("skyfed").submodule_search_locations[0] + "/control.py"
exec(compile("exec('1')", inside, "exec"))
exec(compile("exec('1')", "/skyfed/elsewhere.py", "exec"))
"""
# what the sources must not call: name, or module and name; None for every name of a module
BANNED = {
    ("", "eval"), ("", "exec"), ("", "compile"), ("", "__import__"), ("pickle", None), ("marshal", None),
    ("shelve", None), ("dill", None), ("joblib", None), ("cloudpickle", None), ("torch", "load"), ("torch", "save"),
    ("os", "system"), ("os", "popen"), ("yaml", "load"), ("multiprocessing", None), ("builtins", None),
    ("numpy", "load"), ("pandas", "read_pickle"), ("runpy", None),
}  # fmt: skip
NETWORK = {"socket", "urllib", "http", "requests", "ftplib", "smtplib", "ssl", "asyncio"}
MAY_ASK = {"tasks/cifar10.py", "report/watch.py"}  # `skyfed data get` and `skyfed watch` (loopback) are asked for


def forbidden(path: Path) -> Iterator[str]:
    """Say every forbidden call and import of a source file."""
    where = path.relative_to(SOURCES).as_posix()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if (node.module, alias.name) in BANNED:
                        yield f"{where}:{node.lineno}: imports {alias.name} from {node.module}"
            for name in (name.split(".")[0] for name in names):
                if (name, None) in BANNED or (name in NETWORK and where not in MAY_ASK and "flower" not in where):
                    yield f"{where}:{node.lineno}: imports {name}"
        elif isinstance(node, ast.Call):
            function = node.func
            if isinstance(function, ast.Name) and ("", function.id) in BANNED:
                yield f"{where}:{node.lineno}: calls {function.id}"
            if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
                pair = (function.value.id, function.attr)
                if pair in BANNED:
                    yield f"{where}:{node.lineno}: calls {'.'.join(pair)}"
                if pair == ("np", "load") and not _without_pickle(node):
                    yield f"{where}:{node.lineno}: np.load without allow_pickle=False"


def _without_pickle(call: ast.Call) -> bool:
    return any(
        word.arg == "allow_pickle" and isinstance(word.value, ast.Constant) and word.value.value is False
        for word in call.keywords
    )


def audit(count: int, seed: int) -> list[Row]:
    """Run the verbs under a hook, in the parent and in `count` workers, and read the sources."""
    files = sorted(SOURCES.rglob("*.py"))
    found = [line for path in files for line in forbidden(path)]
    with workshop() as place:
        log, hooks = place / "audit", place / "hooks"
        hooks.mkdir()
        (hooks / "sitecustomize.py").write_text(HOOK)
        path = os.pathsep.join([str(hooks), os.environ["PYTHONPATH"]])
        environment = {**os.environ, "PYTHONPATH": path, "ENDURANCE_AUDIT": str(log)}
        run, small = place / "run", ("rounds=2", f"seed={seed}", f"workers={count}", "flight.method=exact")
        verbs = [arguments(run, *small), ["resume", str(run)], ["runs", str(run)]]
        verbs += [["evaluate", str(run)], ["report", str(run)]] if count > 1 else []
        failed = []
        for words in verbs:
            done = subprocess.run(
                [sys.executable, "-m", "skyfed", *words],
                env=environment,
                capture_output=True,
                text=True,
                timeout=LONG,
            )
            failed += [f"{words[0]}: exit {done.returncode}: {done.stderr[-300:]}"] if done.returncode else []
        seen = log.read_text().splitlines() if log.exists() else []
        subprocess.run([sys.executable, "-c", CONTROL], env=environment, check=True)
        sees = log.read_text() if log.exists() else ""
        works = all(word in sees for word in ("pickle.find_class", "socket", "control.py")) and "elsewhere" not in sees
        hooked = Path(f"{log}.hooked").read_text().splitlines()
        works &= count < 2 or sum("skyfed.workers" in line for line in hooked) >= count  # the workers have it too
    unpickled = [line for line in seen if line.startswith("pickle")]
    others = [line for line in seen if not line.startswith("pickle")]
    verbs_said = ", ".join(words[0] for words in verbs)
    return [
        Row(f"names unpickled by {verbs_said} and their workers (audit hook)", str(len(unpickled)), "0",
            not unpickled and works and not failed, {"failures": (failed + unpickled)[:5]}
            if failed or unpickled else {}),
        Row(f"uses of the network, and of exec and compile by the package, in {verbs_said} (audit hook)",
            str(len(others)), "0", not others and works, {"failures": others[:5]} if others else {}),
        Row(f"forbidden calls and imports in {len(files)} source files", str(len(found)), "0", not found,
            {"failures": found[:5]} if found else {}),
    ]  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1:] == ["--sources"]:
        print(json.dumps([line for path in sorted(SOURCES.rglob("*.py")) for line in forbidden(path)]))
    else:
        run_part(audit, 2, __doc__)
