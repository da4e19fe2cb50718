"""A table of results as text: for a terminal, LaTeX, Markdown, CSV and JSON."""

import csv
import io
import json
from collections.abc import Callable

from skyfed.report.measures import modelled, scaled
from skyfed.report.numbers import MISSING, probability
from skyfed.report.result_table import ResultTable, TableCell, TableColumn, records

_LATE = "mean of the tests in the last quarter of the rounds"
_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "<": r"\textless{}", ">": r"\textgreater{}",
    "–": "--", "×": r"$\times$",
}  # fmt: skip


def caption(table: ResultTable, mark: str) -> str:
    """Return what a reader must know: measure, model, number of seeds, level, what is marked and what is missing."""
    first = table.columns[0]
    rounds = max(summary.rounds for row in table.rows for summary in row.by_seed.values())
    about = (
        f"{_LATE}, {first.measure.about.removeprefix('late, ')} set" if "late" in first.name else first.measure.about
    )
    said = [f"Accuracy: {about}, {rounds} rounds."]
    if table.one_seed:
        said.append("One seed: no row is called better.")
    else:
        rule = "Tukey's test; additive model of rows and seeds, 5 % for each column"
        said.append(f"Mean ± 95 % interval of each mean over {table.seeds} seeds (Student's t).")
        said.append(f"{mark}: the best mean and what is not told apart from it, unless that is all ({rule}).")
        if first.reference:
            test = "Dunnett" if table.against else "the best mean, Tukey"
            said.append(f"Verdict: against {first.reference} ({test}'s test).")
    if named := modelled([column.name for column in table.columns]):
        said.append(f"Modelled: {', '.join(named)}.")
    central = [row.title for row in table.rows if row.central]
    said += [f"{', '.join(dict.fromkeys(central))}: central training, no rival."] if central else []
    said += [f"Left out: {'; '.join(table.left_out)}."] if table.left_out else []
    return " ".join(said)


def to_markdown(table: ResultTable) -> str:
    """Return a Markdown table with its caption below."""
    lines = [[_markdown(word) for word in line] for line in _lines(table, lambda text: text)]
    for line, marks in zip(lines[1:], _marks(table), strict=True):
        line[1:] = [f"**{text}**" if best else text for text, best in zip(line[1:], marks, strict=True)]
    rule = ["---", *["---:"] * len(table.columns), *["---"] * (len(lines[0]) - 1 - len(table.columns))]
    return (
        "\n".join(f"| {' | '.join(line)} |" for line in [lines[0], rule, *lines[1:]]) + f"\n\n{caption(table, 'Bold')}"
    )


def to_latex(table: ResultTable) -> str:
    r"""Return a LaTeX table for \usepackage{booktabs}."""
    head, *body = _lines(table, _escape)
    for line, marks in zip(body, _marks(table), strict=True):
        line[1:] = [rf"\textbf{{{text}}}" if best else text for text, best in zip(line[1:], marks, strict=True)]
    alignment = "l" + "r" * len(table.columns) + "l" * (len(head) - 1 - len(table.columns))
    rows = "\n".join(f"    {' & '.join(line)} \\\\" for line in body)
    return "\n".join(
        [
            "% \\usepackage{booktabs}",
            r"\begin{table}",
            r"  \centering",
            f"  \\caption{{{_escape(caption(table, 'Bold'))}}}",
            f"  \\begin{{tabular}}{{{alignment}}}",
            r"    \toprule",
            f"    {' & '.join(head)} \\\\",
            r"    \midrule",
            rows,
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
        ]
    )


def to_csv(table: ResultTable) -> str:
    """Return one line per cell, values in SI units."""
    text = io.StringIO()
    lines = records(table)
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue().rstrip("\n")


def to_json(table: ResultTable) -> str:
    """Return the caption and one record per cell, values in SI units."""
    return json.dumps({"caption": caption(table, "best"), "cells": records(table)}, indent=2)


def print_table(table: ResultTable, title: str) -> None:
    """Print the table; in a narrow terminal without costs that can be spared, which it names."""
    from skyfed.report.terminal_tables import console, show, table_of

    heads, *body = _lines(table, lambda text: text, "\n")
    words = [heads[0], *heads[1 + len(table.columns) :]]
    drawn = table_of(title, heads, left=words)
    for line, marks in zip(body, _marks(table), strict=True):
        drawn.add_row(line[0], *(f"{text} *" if best else text for text, best in zip(line[1:], marks, strict=True)))
    show(drawn, heads[len(table.columns) : 1 : -1])
    console().print(caption(table, "*"), markup=False, highlight=False)


def _lines(table: ResultTable, escape: Callable[[str], str], apart: str = " ") -> list[list[str]]:
    """Return head and body as words."""
    heads = [column.measure.header(column.unit).replace("\n", apart) for column in table.columns]
    verdicts = any(cell.verdict for cell in table.columns[0].cells)
    lines = [["", *heads, *(["verdict"] if verdicts else [])]]
    for k, row in enumerate(table.rows):
        cells = [_shown(column, column.cells[k]) for column in table.columns]
        lines.append([row.name, *cells, *([_judged(table.columns[0].cells[k])] if verdicts else [])])
    return [[escape(word) for word in line] for line in lines]


def _marks(table: ResultTable) -> list[list[bool]]:
    """Return which cells of the body are best; the verdict, if there is one, is not."""
    verdict = [False] * any(cell.verdict for cell in table.columns[0].cells)
    return [[*(column.cells[k].best for column in table.columns), *verdict] for k in range(len(table.rows))]


def _shown(column: TableColumn, cell: TableCell) -> str:
    return scaled(cell.mean, cell.half, column.unit) if cell.n else MISSING


def _judged(cell: TableCell) -> str:
    if cell.comparison is None:
        return cell.verdict or MISSING
    return f"{cell.verdict}, {probability(cell.comparison.p)}"


def _escape(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text)


def _markdown(text: str) -> str:
    """Keep a name from being read as Markdown or HTML."""
    for letter in "\\|*_`[]":
        text = text.replace(letter, f"\\{letter}")
    return text.replace("<", "&lt;")
