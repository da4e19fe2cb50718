"""Whether the code that a run's config names may be run: only of folders that this user made, or trusts.

A config names code by import paths. Reading a folder imports none of it. Who begins such a run signs its manifest with
a key of one's own, which stays private; going on with the run, or evaluating it, asks for that signature.
"""

import hashlib
import hmac
import os
import secrets

from skyfed.config import Config
from skyfed.errors import BadInputError
from skyfed.files import from_home


def named_code(config: Config) -> list[str]:
    """Return the import paths in a config."""
    uses = [row.use for row in config.rows] + [each.use for each in config.flight.constraints]
    uses += [config.data.name, config.model.name, config.flight.method, config.world.use]
    paths = [use for use in uses if ":" in use and not use.startswith("folder:")]
    return sorted({*paths, *(basis for basis in config.field.bases if "." in basis.partition(":")[0])})


def signature(identity: str) -> str:
    """Return this user's signature of a config's identity; empty where a key has no place."""
    key = _own_key()
    return hmac.new(key, f"skyfed run {identity}".encode(), hashlib.sha256).hexdigest() if key else ""


def _own_key() -> bytes:
    """Return this user's key, made on first use."""
    try:
        place = from_home(os.environ.get("XDG_CONFIG_HOME") or "~/.config") / "skyfed"
    except BadInputError:
        return b""
    path = place / "key"
    try:
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(32))
    except OSError:  # it is there already, or the home cannot be written
        pass
    return path.read_bytes() if path.is_file() else b""
