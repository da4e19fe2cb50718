"""The tables and sentences of docs/reproduction.md, one file per question."""
