# Two commands do everything on a fresh machine: `make run` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
OUT    ?= runs/quick

.PHONY: run test check lint types layers setup bench-planner clean

run: $(VENV)/.ready  ## set up, then the main job on preset `quick`
	$(BIN)/skyfed plan quick --out $(OUT)

test: check  ## set up, then every check and every test
	$(BIN)/pytest -n 2

check: lint types layers

lint: $(VENV)/.ready
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check src tests

types: $(VENV)/.ready
	$(BIN)/mypy

layers: $(VENV)/.ready
	$(BIN)/lint-imports

bench-planner: $(VENV)/.ready  ## the planner's figures, all seeds (about half an hour)
	$(BIN)/skyfed bench planner

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "skyfed needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
