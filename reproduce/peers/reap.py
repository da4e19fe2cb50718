"""Run a command and all that it leaves behind, and print the CPU seconds of all: `python reap.py COMMAND...`.

Linux only. Ray's processes are killed and waited for by nobody who would add their seconds up, so the seconds of every
descendant are read ten times a second while it lives: what its last tenth took may be missing, in the peers' favour.
"""

import ctypes
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

_BE_SUBREAPER = 36
_OFTEN = 0.1


def main() -> int:
    """Run the command; its output goes to standard error."""
    ctypes.CDLL(None).prctl(_BE_SUBREAPER, 1, 0, 0, 0)  # processes whose parents have gone become children of this one
    seen: dict[tuple[int, int], float] = {}
    ended = threading.Event()
    watcher = threading.Thread(target=_watch, args=(seen, ended))
    watcher.start()
    code = subprocess.run(sys.argv[1:], stdout=sys.stderr, check=False).returncode
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
    ended.set()
    watcher.join()
    waited = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(max(sum(seen.values()), waited.ru_utime + waited.ru_stime))  # either may miss something
    return code


def _watch(seen: dict[tuple[int, int], float], ended: threading.Event) -> None:
    while not ended.wait(_OFTEN):
        seen.update(_descendants())


def _descendants() -> dict[tuple[int, int], float]:
    """Return the CPU seconds so far of every descendant, by number and start."""
    parents, found = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        pid = int(path.parent.name)
        parents[pid] = int(fields[1])
        found[pid] = (int(fields[19]), (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))
    ours = {os.getpid()}
    while True:
        more = {pid for pid, parent in parents.items() if parent in ours} - ours
        if not more:
            return {(pid, found[pid][0]): found[pid][1] for pid in ours - {os.getpid()}}
        ours |= more


if __name__ == "__main__":
    sys.exit(main())
