"""Filling a page with tables."""

import re


def fill(page: str, found: dict[str, str]) -> str:
    """Return a page with the tables between its markers replaced."""
    for name, table in found.items():
        pattern = re.compile(rf"(<!-- table {name} -->\n).*?(<!-- end of table -->)", re.DOTALL)
        page = pattern.sub(lambda match, table=table: f"{match[1]}\n{table}\n\n{match[2]}", page)  # type: ignore[misc]
    return page
