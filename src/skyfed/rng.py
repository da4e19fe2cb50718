"""Independent random streams keyed by what they are for; nobody uses a global generator."""

import hashlib

import numpy as np


def stream(seed: int, purpose: str, round: int | None = None, vehicle: int | None = None) -> np.random.Generator:
    """Return the generator of one purpose, round and vehicle; equal keys give equal numbers in any order of calls.

    The key is hashed with SHA-256, so streams of different keys are independent and stay the same
    across processes, platforms and versions of Python.
    """
    key = (int(seed), *(None if part is None else int(part) for part in (round, vehicle)))
    digest = hashlib.sha256(repr((purpose, *key)).encode()).digest()
    return np.random.Generator(np.random.PCG64DXSM(int.from_bytes(digest, "little")))
