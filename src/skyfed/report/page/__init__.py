"""One interactive page, self-contained, for one run or many side by side."""

from skyfed.report.page.write import write_page as write_page
