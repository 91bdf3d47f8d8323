# Everything a fresh machine with Python 3.11 needs is set up by the targets themselves.
PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo quick test test-rest test-all check lint bench bench-single bench-partitions bench-replicated bench-audit soak chaos venv format clean

venv: $(STAMP)

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

# FILES="a b" chooses what is produced; the default is the repository's own text files.
# Compiling first: a start from sources alone takes three times as long.
demo: $(STAMP)
	$(BIN)/python -m compileall -q kraftbox controller broker audit serving metalog storage client protocol runtime
	$(BIN)/python scripts/demo.py $(FILES)

# Under a minute: what is wrong most of the time.
quick: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python scripts/run_tests.py --suite quick

# Under eight minutes on two processors: all but what needs minutes of real processes.
test: lint
	$(BIN)/python scripts/run_tests.py --suite core

# What `make test` leaves.
test-rest: $(STAMP)
	$(BIN)/python scripts/run_tests.py --suite rest

# Both, in one run with one sum at its end.
test-all: lint
	$(BIN)/python scripts/run_tests.py --suite core --suite rest

check: lint
	$(BIN)/python -m pytest -q tests/unit/test_tidy.py

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# BENCH="--minutes 11 --cases produce,ten" chooses; without it about an hour. So do the others'
# variables: make bench-replicated REPLICATED="--minutes 10 --cases one".
bench: bench-single bench-partitions bench-replicated

bench-single: $(STAMP)
	$(BIN)/python -m bench.single_node $(BENCH)

bench-partitions: $(STAMP)
	$(BIN)/python -m bench.partitions $(PARTITIONS)

bench-replicated: $(STAMP)
	$(BIN)/python -m bench.replicated $(REPLICATED)

# Ten million records; needs a JRE, and Maven for kafka-dump-log. A few minutes.
bench-audit: $(STAMP)
	$(BIN)/python -m bench.audit $(AUDIT)

# A seed repeats a schedule: make chaos SEED=7 MINUTES=30
SEED ?= 1
MINUTES ?= 5
chaos: $(STAMP)
	$(BIN)/kraftbox chaos --seed $(SEED) --minutes $(MINUTES) --history chaos.kbxh

soak: $(STAMP)
	$(BIN)/python scripts/run_tests.py --suite soak

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .hypothesis
