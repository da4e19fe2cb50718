"""The tables of the pages in docs/reproduction/, one file per page or question."""
