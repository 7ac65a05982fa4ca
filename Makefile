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
# An editable install links single files, so a new file or a new dependency means installing again. A changed line of Rust, or a
# Rust that was installed in between, means building the compiled loops again.
CRATES := mechanisms/rust topics/rust
RUST := $(shell find $(CRATES) -type f -not -path '*/target/*' | sort)
FILES := $(shell { cat pyproject.toml setup.py $(LOCK) $(RUST); find agents mechanisms topics -type f -not -path '*/__pycache__/*' \
	-not -path '*/rust/target/*' -not -name '_compiled*' | sort; command -v cargo; echo "$$SUSURRUS_BUILD_COMPILED"; } | cksum | cut -d ' ' -f 1)
INSTALLED := $(VENV)/installed-$(FILES)
OUTCOME := build/compiled/outcome.txt
# What wheels are built and looked at with, in an environment of its own.
WHEELS_LOCK := deploy/requirements-wheels.lock
WHEELS_TOOLS := build/wheels-tools
WHEELS_ARGS ?=
# A command for each crate, if the compiled loops were built here; else one line says loudly that it is left out.
EACH_CRATE = @grep -q '^Compiled loops' $(OUTCOME) || { echo "RUST SOURCES NOT CHECKED: $$(cat $(OUTCOME))"; exit 0; }; \
	for crate in $(CRATES); do echo "$$crate: $(1)"; \
	PYO3_NO_PYTHON=1 PYO3_BUILD_EXTENSION_MODULE=1 CARGO_TARGET_DIR=$(CURDIR)/build/compiled/$${crate%/rust} sh -c "cd $$crate && $(1)" || exit 1; done
PACKAGES := agents mechanisms topics
# Decoders, route, bound, the transport, and a pipeline from end to end. tests/test_hot_loops.py says what tests of decoders are not here.
HOT_LOOPS := tests/topics/test_golden.py tests/topics/test_record_batch.py tests/topics/wire/test_blocks.py tests/topics/wire/test_partitioner.py \
	tests/agents/formats/test_alike.py tests/agents/formats/test_avro_guard.py tests/agents/formats/test_formats.py tests/agents/formats/test_framing.py tests/agents/formats/test_java_producer.py tests/agents/formats/test_message_types.py tests/agents/formats/test_output_columns.py tests/agents/formats/test_outputs.py tests/agents/formats/test_patience.py tests/agents/formats/test_protobuf_registry.py tests/agents/formats/test_reader.py tests/agents/formats/test_reader_waits.py \
	tests/agents/runtime/faust/test_transport.py tests/agents/runtime/faust/test_record_batches.py tests/agents/runtime/test_transaction.py \
	tests/agents/histogram/test_route_stage.py tests/agents/histogram/test_bound_stage.py tests/agents/histogram/test_end_to_end.py
CHECKED_TOO := deploy benchmarks/throughput.py benchmarks/trigger.py benchmarks/latency.py benchmarks/latency_floor.py benchmarks/recovery.py benchmarks/replay.py benchmarks/scale_groups.py benchmarks/exports.py \
	benchmarks/performance.py tests/broker.py tests/conftest.py tests/deploy \
	tests/mechanisms/histogram/test_numbers.py
PYTEST_ARGS ?=
# What `make check` runs beyond `make test`: tests/left_out.py.
CHECK_ARGS :=
# Bytecode is written: without it, each of the hundreds of processes that tests start would compile the whole package again.
PYTEST = PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadgroup --no-loadscope-reorder $(CHECK_ARGS) $(PURE_ARGS) $(PYTEST_ARGS)
# Tests at a time: on two cores some of them wait for a broker while others compute. Make check runs four, since what it adds computes.
TEST_PROCESSES ?= 5

.DEFAULT_GOAL := help
.PHONY: help demo test test-pure check durations format format-check lint types imports bench campaign docs wheels lock audit-dependencies install clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(INSTALLED)  ## private histogram of a day of web requests, beside the truth; needs no Kafka
	$(BIN)/susurrus demo

test: $(INSTALLED)  ## ten minutes of tests, those on a real Kafka included (PYTEST_ARGS="-m 'not broker'" leaves them out)
	$(PYTEST) --durations=10

# What the compiled loops do, and what they must not change. With them absent, make test has run all of this.
# Many odd records compare the compiled loops with these, or take no compiled loop.
test-pure: PURE_ARGS := -m "not fuzz"
test-pure: $(INSTALLED)  ## the tests of the hot loops again, in pure Python, if the installed ones are compiled
	@grep -q '^Compiled loops' $(OUTCOME) || { echo "NOTHING TO REPEAT IN PURE PYTHON: $$(cat $(OUTCOME))"; exit 0; }; set -ex; \
	SUSURRUS_COMPILED=0 $(PYTEST) $(HOT_LOOPS)

check: CHECK_ARGS := --check
check: TEST_PROCESSES := 4
check: format-check lint types imports test-pure test  ## what CI runs: format, lint, types, import contracts, test-pure, and test with nothing left out

durations: CHECK_ARGS := --check --record-durations
durations: test  ## test with nothing left out, and record how long the tests take, which orders them; on a quiet machine

format: $(INSTALLED)  ## rewrite the code in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(call EACH_CRATE,cargo fmt)

format-check: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(call EACH_CRATE,cargo fmt --check)

lint: $(INSTALLED)  ## ruff's rules, and clippy's for Rust
	$(BIN)/ruff check .
	$(call EACH_CRATE,cargo clippy --quiet --locked --release -- -D warnings)

types: $(INSTALLED)  ## mypy, strict
	$(BIN)/mypy --strict $(addprefix -p susurrus.,$(PACKAGES)) -p susurrus.releases
	$(BIN)/mypy --strict --explicit-package-bases $(CHECKED_TOO)

imports: $(INSTALLED)  ## import contracts: mechanisms are pure, topics are schemas
	$(BIN)/lint-imports

bench: $(INSTALLED)  ## throughput beside Kafka Streams, Quix Streams and Faust on one real broker, hours (BENCH_ARGS="--records 1000000 --runs 1 --rows plain,avro")
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
	$(BIN)/$(COMPILE) pyproject.toml --extra formats --extra registry -c $(LOCK) -o deploy/requirements.lock; \
	$(BIN)/$(COMPILE) --group image -c $(LOCK) -o deploy/requirements-build.lock; \
	$(BIN)/$(COMPILE) --no-deps --group charts -c $(LOCK) -o deploy/requirements-dashboard.lock; \
	$(BIN)/$(COMPILE) --group wheels -c $(LOCK) -o $(WHEELS_LOCK)

wheels: $(WHEELS_TOOLS)  ## the source distribution and the wheels of a release, into dist/ (WHEELS_ARGS="--only native" for this machine's alone)
	$</bin/python -m deploy.wheels $(WHEELS_ARGS)

$(WHEELS_TOOLS): $(WHEELS_LOCK)
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 or later found; install one, or run make PYTHON=/path/to/python"; exit 1; }
	rm -rf $@ && $(PYTHON) -m venv $@
	$@/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r $(WHEELS_LOCK)
	@touch $@

audit-dependencies: $(INSTALLED)  ## known security advisories of what the lock files name, where PyPI or OSV can be asked
	$(BIN)/python deploy/audit.py

install: $(INSTALLED)  ## the virtual environment in .venv, with the development tools

$(INSTALLED):
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 or later found; install one, or run make PYTHON=/path/to/python"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r $(LOCK)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
		--config-settings editable_mode=strict -e .
	@cat $(OUTCOME)
	@rm -f $(VENV)/installed-*
	@touch $@

clean:  ## remove the virtual environment, caches and build output (the JARs in ~/.cache/susurrus stay)
	rm -rf $(VENV) build dist *.egg-info .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -rf mechanisms/_compiled* topics/_compiled* mechanisms/rust/target topics/rust/target
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
