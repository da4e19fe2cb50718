"""Words of pydantic's that no message may have: they are a programmer's."""

import re

_LIBRARY = re.compile(
    r"Input|Value error|Field required|Extra inputs|should (have|be)"
    r"|valid (integer|number|string|array|dict|list|boolean)"
    r"|after validation|an object|greater than|less than|pydantic|\btuple\b|\bdict\b|type="
)


def plain(message: str) -> bool:
    """Tell whether a message is in plain words, on one line."""
    return _LIBRARY.search(message) is None and "\n" not in message
