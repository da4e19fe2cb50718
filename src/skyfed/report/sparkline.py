"""A curve in one line of text."""

from collections.abc import Sequence

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII = "_.-=+*%#"  # for terminals that show no blocks


def sparkline(
    values: Sequence[float | None], total: int, width: int, low: float, high: float, marks: str = BLOCKS
) -> str:
    """Draw the values so far, of `total` to come, into a line `width` wide; blank where nothing is known.

    A cell shows the last value in it. The line is as long as the share that is done, so it tells progress too.
    """
    done = min(len(values), total)
    cells = -(-done * width // total)
    last = [min(done, max(-(-(cell + 1) * total // width), 1)) - 1 for cell in range(cells)]
    return "".join(_mark(values[index], low, high, marks) for index in last)


def _mark(value: float | None, low: float, high: float, marks: str) -> str:
    if value is None:
        return " "
    share = (value - low) / (high - low) if high > low else 1.0
    return marks[min(len(marks) - 1, max(0, int(share * len(marks))))]
