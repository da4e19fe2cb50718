"""The reproduction: a sweep's runs gathered into small tables, and these turned into docs/reproduction.md.

python -m skyfed.report.reproduction collect runs/reproduce results/reproduction
python -m skyfed.report.reproduction page results/reproduction docs/reproduction.md
"""

from skyfed.report.reproduction.collect import MAIN, collect
from skyfed.report.reproduction.page import fill
from skyfed.report.reproduction.reading import PAPER
from skyfed.report.reproduction.tables import tables

__all__ = ["MAIN", "PAPER", "collect", "fill", "tables"]
