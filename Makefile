# Every target creates .venv and installs its requirements (pinned by constraints.txt) if necessary, then runs.
# PYTHON is the interpreter for the environment: make test PYTHON=python3.12.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
SOURCES := pyproject.toml constraints.txt CMakeLists.txt tools/build_backend.py $(wildcard src/meshnn/_core/*.[chp]*)

.PHONY: demo play play-assets test test-all test-floors versions steady sanitize mutants wheel bench study study-quick bench-history tables docs lint
.PHONY: style format clean

demo: $(VENV)/.installed
	$(BIN)/meshnn reproduce synthetic --quick --out results/demo
	@$(BIN)/meshnn reproduce report --out results/demo

# A net in the browser that can be edited during training; make play DATA=table.csv uses a table.
play: $(VENV)/.installed-play
	$(BIN)/meshnn play $(DATA)

# Build the page of meshnn play into the package. Only this target needs Node and npm. A test also builds it and compares.
play-assets:
	cd play && npm ci --no-audit --no-fund --ignore-scripts && npm run --silent check && npm run --silent build

# Run the tests and mypy in parallel, because mypy without its cache takes long; its report is printed last.
define with-types
@report=$$(mktemp); trap 'kill $$types 2>/dev/null; rm -f $$report' EXIT; trap 'exit 130' INT TERM; \
$(BIN)/mypy >$$report 2>&1 & types=$$!; \
$(BIN)/python -m pytest -q -n 2 --dist worksteal $(1); tests=$$?; \
wait $$types; right=$$?; types=; echo mypy; cat $$report; [ $$tests -eq 0 ] && [ $$right -eq 0 ]
endef

# Two processes use two processors; more threads in each process would only wait for each other.
test: export OMP_NUM_THREADS := 1
test: export OPENBLAS_NUM_THREADS := 1
test: $(VENV)/.installed-test
	$(MAKE) --no-print-directory style
	$(call with-types,-m "not slow" --hypothesis-profile=few)

# All tests with all examples, including slow ones, and a sample of mutants, all of which the tests must detect.
test-all: $(VENV)/.installed-docs
	$(MAKE) --no-print-directory style
	$(call with-types)
	$(BIN)/python tests/sanitize.py address,undefined --quick
	$(BIN)/python tests/mutations.py --jobs 2
	$(MAKE) --no-print-directory test-floors FLOORS="$(SAMPLE)"

# The fast tests on every installed supported Python (pyenv, uv, system), each in a separate environment.
versions: $(VENV)/.installed-test
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/nox -s tests

# The fast tests with the lowest supported versions of all dependencies.
SAMPLE = tests/estimators/test_golden_behaviour.py tests/estimators/test_estimators.py tests/estimators/test_columns.py tests/storage/test_storage.py
test-floors: $(VENV)/.installed-test
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/nox -s floors -- $(FLOORS)

# The numerical tests with other instruction sets, other numbers of threads and under load; takes over an hour.
steady: $(VENV)/.installed-test
	$(BIN)/python tests/steady.py --times 3

# The tests of the engine with sanitizers for memory errors and data races.
sanitize: $(VENV)/.installed-test
	$(BIN)/python tests/sanitize.py address,undefined
	$(BIN)/python tests/sanitize.py thread

# A wheel with all instruction sets for every Linux with glibc 2.28 or later; ziglang is the compiler.
wheel: $(VENV)/.installed-test
	MESHNN_ZIG=1 MESHNN_GLIBC=2.28 $(BIN)/python -m build --wheel -q -C cmake.define.MESHNN_SETS=all -o build/wheel .
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m auditwheel repair --wheel-dir dist build/wheel/*.whl

mutants: $(VENV)/.installed-test
	$(BIN)/python tests/mutations.py --count 100

lint: style
	$(BIN)/mypy

style: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python tools/prose.py

bench: $(VENV)/.installed-bench
	$(BIN)/python benchmarks/run.py --out results/bench.json

# Time and memory of a gradient by neurons, edges, density, ticks, outputs and batch size, compared with PyTorch and JAX.
study study-quick: $(VENV)/.installed-bench
	cd benchmarks && ../$(BIN)/python -m scaling --out ../results/$@ $(if $(findstring quick,$@),--quick)

# Append the ratios of the last `make bench` to the history, and write the page of the history.
bench-history: $(VENV)/.python
	$(BIN)/python benchmarks/history.py --add results/bench.json --page results/history.html

# The default estimators and those of other libraries on 145 tables; results of peers are cached after the first run.
tables: $(VENV)/.installed-bench
	$(BIN)/python benchmarks/tables.py --jobs 2 --json results/tables.json

# Build the site: pages, reference and an executed gallery. Warnings are errors. Open build/site/index.html.
docs: export OMP_NUM_THREADS := 1
docs: $(VENV)/.installed-docs
	$(BIN)/python -m sphinx -b html -E -W --keep-going -n -q docs build/site
	@echo "build/site/index.html"

format: $(VENV)/.installed-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .nox results build dist docs/above docs/api docs/gallery .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.python:
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.python $(SOURCES)
	$(PIP) -e '.[plots]'
	@touch $@

$(VENV)/.installed-play: $(VENV)/.python $(SOURCES)
	$(PIP) -e '.[play,onnx]'
	@touch $@

$(VENV)/.installed-test: $(VENV)/.python $(SOURCES)
	$(PIP) -e '.[dev,plots,torch]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-bench: $(VENV)/.python $(SOURCES)
	$(PIP) -e '.[bench,torch]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-docs: $(VENV)/.python $(SOURCES)
	$(PIP) -e '.[docs,dev,plots,torch]'
	@touch $@ $(VENV)/.installed $(VENV)/.installed-test
