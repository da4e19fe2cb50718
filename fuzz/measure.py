"""What an input costs, on Linux: CPU seconds of the process, and its peak memory above what it had before the input."""

import os
import re
import resource
import signal
import time

CPU = 1.0  # seconds that an input may take: to be read, checked and packed again
MEMORY = 64_000_000  # bytes that the process may have beyond what it had before the input
_SPACE = 128 << 20  # bytes of address space for all inputs of a process together: what is only reserved counts here
_STUCK = 40  # times what is allowed: CPU after which an input ends the process, even inside compiled code


class Meter:
    """Measures one input after the other, and lets the kernel hold limits that none may reach."""

    def __init__(self, most: float = CPU) -> None:
        """Limit the address space to what there is and a fixed part more; `most` CPU seconds are allowed."""
        self.cpu, self.memory, self._begin, self._most = 0.0, 0, 0.0, most
        self._status = os.open("/proc/self/status", os.O_RDONLY)
        self._peak = os.open("/proc/self/clear_refs", os.O_WRONLY)
        self._resident = self._read("VmRSS")
        resource.setrlimit(resource.RLIMIT_AS, (self._read("VmSize") + _SPACE, resource.RLIM_INFINITY))
        signal.signal(signal.SIGPROF, signal.SIG_DFL)

    def start(self) -> None:
        """Begin an input."""
        os.write(self._peak, b"5")  # the peak is that of what follows; getrusage would keep the parent's, too
        signal.setitimer(signal.ITIMER_PROF, _STUCK * self._most)
        self._begin = time.process_time()

    def stop(self) -> str:
        """End an input; returns which bound it broke, or nothing."""
        taken = time.process_time() - self._begin
        signal.setitimer(signal.ITIMER_PROF, 0)
        status = os.pread(self._status, 4096, 0)
        peak = self._read("VmHWM", status) - self._resident
        self._resident = self._read("VmRSS", status)
        self.cpu, self.memory = max(self.cpu, taken), max(self.memory, peak)
        if taken > self._most:
            return f"it took {taken:.2f} s of CPU, at most {self._most:g} are allowed"
        return f"it took {peak} bytes of memory, at most {MEMORY} are allowed" if peak > MEMORY else ""

    def _read(self, name: str, status: bytes = b"") -> int:
        """Return a figure of this process in bytes."""
        (kilobytes,) = re.findall(rf"{name}:\s+(\d+) kB".encode(), status or os.pread(self._status, 4096, 0))
        return int(kilobytes) * 1024
