# Every target sets up what it needs, from a fresh clone: Python 3.11 or later, and for a real Kafka JDK 17 and Maven.

# The first of these that is 3.11 or later; override with make PYTHON=/path/to/python.
PYTHON := $(shell for python in python3.11 python3 python3.12 python3.13 python3.14 python; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$python; break; }; done)

VENV := .venv
BIN := $(VENV)/bin
# What this environment and continuous integration install, and what the image does: versions and hashes, for every platform.
LOCK := deploy/requirements-dev.lock
COMPILE = uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	--custom-compile-command 'make lock' $(LOCK_ARGS)
LOCK_ARGS ?=
# An editable install links single files, so a new file or a new dependency means installing again.
FILES := $(shell { cat pyproject.toml $(LOCK); find agents mechanisms topics -type f -not -path '*/__pycache__/*' | sort; } | cksum | cut -d ' ' -f 1)
INSTALLED := $(VENV)/installed-$(FILES)
PACKAGES := agents mechanisms topics
CHECKED_TOO := deploy benchmarks/throughput.py benchmarks/trigger.py benchmarks/latency.py benchmarks/recovery.py benchmarks/replay.py \
	benchmarks/performance.py tests/broker.py tests/conftest.py tests/deploy \
	tests/mechanisms/histogram/test_numbers.py
PYTEST_ARGS ?=
# Tests at a time: on two cores some of them wait for a broker while others compute.
TEST_PROCESSES ?= 4

.DEFAULT_GOAL := help
.PHONY: help demo test check format format-check lint types imports bench campaign docs lock install clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(INSTALLED)  ## private histogram of a day of web requests, beside the truth; needs no Kafka
	$(BIN)/susurrus demo

test: $(INSTALLED)  ## a quarter of an hour of tests, those on a real Kafka included (PYTEST_ARGS="-m 'not broker'" leaves them out)
	$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadgroup --no-loadscope-reorder --durations=10 $(PYTEST_ARGS)

check: format-check lint types imports test  ## what CI runs: format, lint, types, import contracts, tests

format: $(INSTALLED)  ## rewrite the code in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

format-check: $(INSTALLED)
	$(BIN)/ruff format --check .

lint: $(INSTALLED)  ## ruff's rules
	$(BIN)/ruff check .

types: $(INSTALLED)  ## mypy, strict
	$(BIN)/mypy --strict $(addprefix -p susurrus.,$(PACKAGES))
	$(BIN)/mypy --strict --explicit-package-bases $(CHECKED_TOO)

imports: $(INSTALLED)  ## import contracts: mechanisms are pure, topics are schemas
	$(BIN)/lint-imports

bench: $(INSTALLED)  ## throughput beside Kafka Streams, Quix Streams and Faust on one real broker, an hour (BENCH_ARGS="--records 1000000 --runs 1")
	$(BIN)/python benchmarks/throughput.py $(BENCH_ARGS)

campaign: $(INSTALLED)  ## hours of random faults, outages and statistics (CAMPAIGN_ARGS="--minutes 20 --events 10 --only toeplitz,tests")
	$(BIN)/python benchmarks/campaign.py $(CAMPAIGN_ARGS)

docs: $(INSTALLED)  ## the documentation as a site, in build/site/index.html
	$(BIN)/sphinx-build -q -W --keep-going -b html docs build/site
	@echo "open build/site/index.html"

lock: $(INSTALLED)  ## fit the lock files to pyproject.toml (LOCK_ARGS=--upgrade for the newest versions that it allows)
	@index=$${UV_DEFAULT_INDEX:-$$($(BIN)/python -m pip config get global.index-url 2>/dev/null || true)}; \
	test -z "$$index" || export UV_DEFAULT_INDEX="$$index"; set -ex; \
	$(BIN)/$(COMPILE) pyproject.toml --extra dev --group build -o $(LOCK); \
	$(BIN)/$(COMPILE) pyproject.toml --extra registry -c $(LOCK) -o deploy/requirements.lock; \
	$(BIN)/$(COMPILE) --group image -c $(LOCK) -o deploy/requirements-build.lock; \
	$(BIN)/$(COMPILE) --no-deps --group charts -c $(LOCK) -o deploy/requirements-dashboard.lock

install: $(INSTALLED)  ## the virtual environment in .venv, with the development tools

$(INSTALLED):
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 or later found; install one, or run make PYTHON=/path/to/python"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(LOCK)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
		--config-settings editable_mode=strict -e .
	@rm -f $(VENV)/installed-*
	@touch $@

clean:  ## remove the virtual environment, caches and build output (the JARs in ~/.cache/susurrus stay)
	rm -rf $(VENV) build dist *.egg-info .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
