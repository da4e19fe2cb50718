"""The paper's bits for an upload, as printed; what is really sent is measured, not computed here."""

import math


def paper_bits(size: int, delta: float, s: int, raw: bool) -> float:
    """Bits of an upload by the paper's formula, mask included, at the drawn ratio delta (payload bits).

    raw        p (1 - delta) (1 + 32) + p
    quantised  p (1 - delta) (1 + ceil(log2 s)) + 32 + p
    """
    if raw:
        return size * (1 - delta) * 33 + size
    return size * (1 - delta) * (1 + math.ceil(math.log2(s))) + 32 + size
