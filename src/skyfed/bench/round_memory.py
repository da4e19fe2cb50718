"""Peak memory of one vehicle's AFL round, in a process of its own: `python -m skyfed.bench.round_memory PRESET`.

It prints JSON: bytes with torch alone, with the model and all data, and after the round. The peak is the kernel's own
(VmHWM). `getrusage` gives the same figure, but on Linux it starts from the memory of the process that started this one.
"""

import json
import resource
import sys
from pathlib import Path

import numpy as np
import torch


def peak_bytes() -> int:
    """Return the largest resident memory that this process has had."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def measure_round(preset: str) -> dict[str, float]:
    """Do vehicle 0's first AFL round of a preset and return what it took."""
    peaks: dict[str, float] = {"torch": peak_bytes()}
    torch.set_num_threads(1)
    from skyfed.config import load_config
    from skyfed.jobs import Job
    from skyfed.onboard import Onboard

    config = load_config(preset, ['algorithms=["afl"]'])
    onboard = Onboard(config, config.load_task())
    held = config.sensing.initial + config.sensing.n_max  # after a round of sensing
    job = Job("local", vars(onboard.engine.initial()), "afl", 0, 0, {"samples": np.arange(held)})
    peaks["ready"] = peak_bytes()
    words = onboard.do(job).words
    return peaks | {"round": peak_bytes(), "flops": words["work"] * words["flops"], "held": held}


if __name__ == "__main__":
    print(json.dumps(measure_round(sys.argv[1])))
