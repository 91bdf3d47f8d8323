# Everything a fresh machine with Python 3.11 needs is set up by the targets themselves.
PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# What is installed for development: all but Spark is `dev`.
EXTRAS ?= dev,audit
CONSTRAINTS ?= --constraint constraints.txt

.PHONY: release demo docs quick test test-rest test-all check lint bench bench-single bench-partitions bench-replicated bench-moves bench-start bench-elections bench-tier bench-new-replica bench-local-logs bench-aims bench-compare bench-audit soak soak-seeds chaos venv format clean test-pythons test-lowest tests-of constraints

venv: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet $(CONSTRAINTS) --editable '.[$(EXTRAS)]'
	touch $@

# FILES="a b" chooses what is produced; the default is the repository's own text files.
# Compiling first: a start from sources alone takes three times as long.
demo: $(STAMP)
	$(BIN)/python -m compileall -q kraftbox controller broker audit serving metalog storage client protocol runtime simulation
	$(BIN)/python scripts/demo.py $(FILES)

# The site, in build/site; a dead link or anchor fails. KRAFTBOX_HOME: links to the repository's files.
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

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
	$(BIN)/python -m pytest -q tests/unit/test_tidy.py tests/unit/test_prose.py

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The figures of the last run of each benchmark.
FIGURES := .bench

# BENCH="--minutes 11 --cases produce,ten" chooses; without it about an hour. So do the others'
# variables: make bench-replicated REPLICATED="--minutes 10 --cases one".
bench: bench-single bench-partitions bench-replicated bench-start bench-moves bench-elections bench-tier bench-new-replica bench-local-logs bench-aims

bench-single: $(STAMP) | $(FIGURES)
	$(BIN)/python -m bench.single_node --json $(FIGURES)/single_node.json $(BENCH)

bench-partitions: $(STAMP)
	$(BIN)/python -m bench.partitions $(PARTITIONS)

bench-replicated: $(STAMP) | $(FIGURES)
	$(BIN)/python -m bench.replicated --json $(FIGURES)/replicated.json $(REPLICATED)

bench-moves: $(STAMP) | $(FIGURES)
	$(BIN)/python -m bench.leader_moves --kafka --json $(FIGURES)/leader_moves.json $(MOVES)

bench-elections: $(STAMP)
	$(BIN)/python -m bench.elections --kafka $(ELECTIONS)

bench-start: $(STAMP) | $(FIGURES)
	$(BIN)/python -m bench.cluster_start --kafka --json $(FIGURES)/cluster_start.json $(START)

# Needs go, which versitygw is built with the first time. Some minutes.
bench-tier: $(STAMP) | $(FIGURES)
	$(BIN)/python -m bench.tier --json $(FIGURES)/tier.json $(TIER)

bench-new-replica: $(STAMP) | $(FIGURES)
	$(BIN)/python -m bench.new_replica --kafka --json $(FIGURES)/new_replica.json $(NEW_REPLICA)
	$(BIN)/python -m bench.fresh_leader $(FRESH_LEADER)

# Ten minutes for each of three phases.
bench-local-logs: $(STAMP)
	$(BIN)/python -m bench.local_log_reports --minutes 30 $(LOCAL_LOGS)

# One page: every aim, met or missed, from the figures of the targets above.
bench-aims: $(STAMP)
	$(BIN)/python -m bench.aims $(FIGURES)

$(FIGURES):
	mkdir -p $@

# Whether this working tree is slower than a commit by more than noise: make bench-compare REF=HEAD~3
REF ?= HEAD
bench-compare: $(STAMP)
	$(BIN)/python -m bench.compare $(REF) $(COMPARE)

# Ten million records; needs a JRE, and Maven for kafka-dump-log. A few minutes, and ten for both engines.
bench-audit: $(STAMP)
	$(BIN)/python -m bench.audit $(AUDIT)
	$(BIN)/python -m bench.audit_engines $(ENGINES)

# A seed repeats a schedule: make chaos SEED=7 MINUTES=30
SEED ?= 1
MINUTES ?= 5
chaos: $(STAMP)
	$(BIN)/kraftbox chaos --seed $(SEED) --minutes $(MINUTES) --history chaos.kbxh

soak: $(STAMP) test-lowest
	$(BIN)/python scripts/run_tests.py --suite soak
	$(MAKE) --no-print-directory soak-seeds

# Some hours of all processors. What was played of this code already is not played again, so it may
# be ended and begun as often as you like.
SEEDS ?= 10000
JOBS ?= $(shell nproc)
soak-seeds: $(STAMP) | $(FIGURES)
	$(BIN)/kraftbox sim --seed 0 --runs $(SEEDS) --jobs $(JOBS) --marks --ledger $(FIGURES)/seeds.jsonl

# The quick tests under each Python that is promised, without Spark: it belongs to the audit alone.
PYTHONS ?= 3.11 3.12 3.13
test-pythons:
	set -e; for version in $(PYTHONS); do \
		$(MAKE) --no-print-directory tests-of VENV=.venv-$$version PYTHON=python$$version EXTRAS=test; \
	done

# The quick tests with the lowest versions that pyproject.toml allows.
test-lowest:
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet uv
	.venv-lowest/bin/uv pip install --quiet --python .venv-lowest --resolution lowest-direct --editable '.[test]'
	.venv-lowest/bin/python scripts/run_tests.py --suite quick

tests-of: $(STAMP)
	$(BIN)/python scripts/run_tests.py --suite quick

# The versions that a fresh environment gets today, for CI.
constraints:
	$(PYTHON) -m venv .venv-newest
	.venv-newest/bin/python -m pip install --quiet --editable '.[dev,audit]'
	(head -1 constraints.txt; .venv-newest/bin/python -m pip freeze --exclude-editable) > constraints.new
	mv constraints.new constraints.txt
	rm -rf .venv-newest

# KRAFTBOX_HOME=https://host/owner/kraftbox make release: docs/releases.md.
release: $(STAMP)
	$(BIN)/python scripts/release.py $(RELEASE)

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .venv-* build dist .mypy_cache .ruff_cache .hypothesis
