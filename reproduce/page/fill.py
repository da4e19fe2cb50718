"""Filling pages with tables of the results that were gathered."""

import re
from pathlib import Path

from reproduce.page import accuracy, costs, factors, machines, planning, readings, shift, vanishing
from reproduce.results import read_machines, read_results
from skyfed.errors import BadInputError


def tables(results: Path) -> dict[str, str]:
    """Return all tables by name."""
    known, runs = read_results(results), read_machines(results)
    rounds, uplink, flights = known["rounds"], known["uplink"], known["flights"]
    return {
        "measures": accuracy.measures(rounds),
        "seeds": accuracy.by_seed(rounds),
        "pairs": accuracy.pairs(rounds),
        "against": accuracy.against(rounds, "afl"),
        "steadiness": shift.steadiness(rounds),
        "stillness": shift.elsewhere(rounds),
        "readings": readings.fleet_table(rounds),
        "budgets": readings.budget_table(rounds),
        "variants": factors.settings(rounds, runs),
        "factors": factors.effects(rounds),
        "flights": planning.flights_table(rounds, flights),
        "pictures": planning.pictures_table(rounds, flights),
        "uploads": costs.uploads(uplink),
        "compared": costs.compared(uplink),
        "both ways": costs.both_ways(rounds),
        "levels": costs.levels(rounds),
        "rates": vanishing.bounded(known["rates"]),
        "floor": vanishing.observed(known["floor"]),
        "machines": machines.table(runs, rounds),
    }


def fill_pages(results: Path, folder: Path) -> None:
    """Renew the tables of every page of a folder; their words stay."""
    if not (results / "rounds.parquet").exists():
        raise BadInputError(f"{results}: no results of a reproduction")
    paths = sorted(folder.glob("*.md"))
    if not paths:
        raise BadInputError(f"{folder}: no folder of pages")
    made = tables(results)
    for path in paths:
        path.write_text(fill(path.read_text(encoding="utf-8"), made), encoding="utf-8")


def fill(page: str, made: dict[str, str]) -> str:
    """Return a page with the tables between its markers replaced."""
    for name, table in made.items():
        pattern = re.compile(rf"(<!-- table {name} -->\n).*?(<!-- end of table -->)", re.DOTALL)
        page = pattern.sub(lambda match, table=table: f"{match[1]}\n{table}\n\n{match[2]}", page)  # type: ignore[misc]
    return page
