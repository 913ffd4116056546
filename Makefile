# Every target creates .venv, installs what it needs (pinned by constraints.txt) and runs; a second call starts at once.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
SOURCES := pyproject.toml constraints.txt

.PHONY: demo test test-all steady mutants bench tables lint format clean

demo: $(VENV)/.installed
	$(BIN)/meshnn reproduce synthetic --quick --out results/demo
	@$(BIN)/meshnn reproduce report --out results/demo

test: $(VENV)/.installed-test
	$(MAKE) --no-print-directory lint
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not slow"

# Everything: then what takes long or starts many processes, and a sample of mutants, which all must be noticed.
test-all: test
	$(BIN)/python -m pytest -q -m slow
	$(BIN)/python tests/mutations.py --sample --out results/sample.json

# The tests that depend on numbers, with sums in another order, on other processors and under load: an hour and more.
steady: $(VENV)/.installed-test
	$(BIN)/python tests/steady.py --times 3

mutants: $(VENV)/.installed-test
	$(BIN)/python tests/mutations.py --count 100

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.installed-bench
	$(BIN)/python benchmarks/run.py --out results/bench.json

# The default estimators on 65 tables beside scikit-learn's: long the first time, then peers come from a cache.
tables: $(VENV)/.installed-bench
	$(BIN)/python benchmarks/tables.py --jobs 2 --json results/tables.json

format: $(VENV)/.installed-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) results build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.python:
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.python $(SOURCES)
	$(PIP) -e '.[plots]'
	@touch $@

$(VENV)/.installed-test: $(VENV)/.python $(SOURCES)
	$(PIP) -e '.[dev,plots,torch]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-bench: $(VENV)/.python $(SOURCES)
	$(PIP) -e '.[bench,torch]'
	@touch $@ $(VENV)/.installed
