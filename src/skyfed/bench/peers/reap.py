"""Run a command and all that it leaves behind, and print the CPU seconds of all: `python reap.py COMMAND...`.

Linux only: processes whose parents have gone become children of this one, so that the kernel adds their seconds up.
"""

import ctypes
import os
import resource
import subprocess
import sys

_BE_SUBREAPER = 36


def main() -> int:
    """Run the command; its output goes to standard error."""
    ctypes.CDLL(None).prctl(_BE_SUBREAPER, 1, 0, 0, 0)
    code = subprocess.run(sys.argv[1:], stdout=sys.stderr, check=False).returncode
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(used.ru_utime + used.ru_stime)
    return code


if __name__ == "__main__":
    sys.exit(main())
