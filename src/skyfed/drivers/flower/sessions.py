"""Notices a key that two vehicles use: each vehicle shows a session of its own, made when it starts and kept nowhere.

A vehicle that is started again shows a new session, and the one before never comes back. If it does, somebody else has
a copy of the key. The key is then quarantined until an operator decides.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path

from skyfed.files import read_json_table, write_whole

SESSION = "skyfed-session"  # the header that shows it
SESSION_VARIABLE = "SKYFED_SESSION"  # what a SuperNode has it from
_GRACE = 10.0  # seconds in which requests of a vehicle that was started again may still arrive
_MOST = 1000  # sessions of one key that are remembered


class Sessions:
    """The sessions of all keys since this start of the SuperLink."""

    def __init__(self, quarantine: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._clock = quarantine, clock
        self._present: dict[bytes, tuple[str, str]] = {}  # by key: the session, and the address that it came from
        self._past: dict[bytes, dict[str, float]] = {}  # by key: sessions, and when each was replaced
        self._version, self._quarantined = (0, 0), set[bytes]()

    def quarantined(self) -> set[bytes]:
        """Return the keys that are kept out; those that an operator has let in again start anew."""
        try:
            status = self._path.stat()
            version = (status.st_mtime_ns, status.st_ino)
        except OSError:
            version = (0, 0)
        if version != self._version:
            keys = {key.encode() for key in read_json_table(self._path) or {}}
            for key in self._quarantined - keys:
                self._present.pop(key, None)
                self._past.pop(key, None)
            self._version, self._quarantined = version, keys
        return self._quarantined

    def check(self, key: bytes, session: str, address: str, signed: Callable[[], bool]) -> str:
        """Return why a request is refused, or nothing; `signed` verifies its signature, which takes a while."""
        if not 16 <= len(session) <= 64 or not (session.isascii() and session.isalnum()):
            return "no session"
        before, where = self._present.get(key, ("", ""))
        if session == before:
            return ""
        if not signed():
            return "a false signature"
        now, past = self._clock(), self._past.setdefault(key, {})
        if session in past:
            if now - past[session] <= _GRACE:
                return ""
            self._quarantine(key, f"its key is used twice, from {where} and from {address}")
            return "two vehicles use this key; it is quarantined"
        if before:
            past[before] = now
            past.pop(next(iter(past)) if len(past) > _MOST else "", None)
        self._present[key] = (session, address)
        return ""

    def _quarantine(self, key: bytes, reason: str) -> None:
        known = read_json_table(self._path) or {}
        write_whole(self._path, json.dumps({**known, key.decode(): reason}, indent=2).encode())
