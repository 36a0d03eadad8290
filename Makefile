# Targets for people and for CI; `make help` lists them. Each does its own set-up, and repeating one costs nothing.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The interpreter that makes the virtual environments: the first of these that runs and is at least 3.10.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.10; do \
	$$p -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1 && { echo $$p; break; }; done)
BIN := .venv/bin
BENCH_BIN := .venv-bench/bin
TORCH := torch==2.13.0
EXTRAS := test,lint,examples,cli,dashboard,docs
BENCH_EXTRAS := bench,dashboard
BENCH_ARGS ?=
TEST_ARGS ?=
KILLS ?= 20
SEED ?= 1

# Downloads hiccup: pip retries connections by itself, and each install is tried three times. Twice quiet: errors only.
# Compiling all modules of all libraries would take a minute; those that are imported are compiled then.
PIP_FLAGS := --no-compile --disable-pip-version-check --retries 10 --timeout 60 --no-input --quiet --quiet -c constraints.txt
define install
for attempt in 1 2 3; do \
	$(1)/python -m pip install $(PIP_FLAGS) $(2) && exit 0; \
	echo "install of $(2) failed (attempt $$attempt of 3)" >&2; sleep $$((attempt * 5)); \
done; exit 1
endef
define venv
if [ -z "$(PYTHON)" ]; then echo "syncline needs Python 3.10 or newer (with the venv module): install one, or run make PYTHON=/path/to/python3.x" >&2; exit 1; fi; \
if ! $(1)/bin/python -m pip --version >/dev/null 2>&1; then echo "making $(1) with $(PYTHON)"; "$(PYTHON)" -m venv --clear $(1); fi
endef

.PHONY: help setup demo test test-long test-browser test-cluster chaos lint docs docs-serve bench bench-setup clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

setup: .venv/.stamp ## make .venv with everything that demo, test and lint need

# Torch comes first and alone: it is the user's choice of build, never a dependency.
.venv/.stamp: pyproject.toml constraints.txt
	@$(call venv,.venv)
	@echo "installing torch (once)"
	@$(call install,$(BIN),$(TORCH))
	@echo "installing syncline and its tools (once)"
	@$(call install,$(BIN),-e ".[$(EXTRAS)]")
	@touch $@

demo: .venv/.stamp ## train a vision transformer on CIFAR-10 with two workers
	@$(BIN)/python examples/train_vit.py

test: .venv/.stamp ## run the tests (TEST_ARGS="-k name" chooses)
	@$(BIN)/python -m pytest $(TEST_ARGS)

test-long: .venv/.stamp ## run the tests that take long: those that kill over and over, pages and programs with large libraries
	@$(BIN)/python -m pytest -m "long and not cluster" $(TEST_ARGS)

# A signal does not reach a test that hangs inside Ray; a thread ends its process.
test-cluster: .venv/.stamp ## run the tests that start Ray clusters, two files at a time
	@$(BIN)/python -m pytest --dist loadfile --timeout-method thread -m cluster $(TEST_ARGS)

test-browser: .venv/.stamp ## run the tests that look at the dashboard in Chromium, one after the other
	@$(BIN)/python -m pytest -n 0 -m browser tests/dashboard/browser $(TEST_ARGS)

# Each kill costs some seconds; a failure names the seed that repeats it.
chaos: .venv/.stamp ## kill trainings and searches at random moments (KILLS=20 SEED=1), then see that they end as undisturbed ones
	@CHAOS_KILLS=$(KILLS) CHAOS_SEED=$(SEED) $(BIN)/python -m pytest --reruns 0 -m long tests/train/chaos tests/tune/chaos $(TEST_ARGS)

lint: .venv/.stamp ## ruff, mypy in strict mode, the import law, the documentation
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy --strict src
	@$(BIN)/python -m pytest -q -n 0 tests/test_import_law.py
	@$(MAKE) --no-print-directory docs

# The theme warns of a version of mkdocs that is not used here.
docs: .venv/.stamp ## build the documentation into build/docs; whatever is wrong with a link or a docstring ends it
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

docs-serve: .venv/.stamp ## show the documentation while it is written
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

bench: .venv-bench/.stamp ## measure side by side with peers (BENCH_ARGS="..." is passed on)
	@$(BENCH_BIN)/python -m bench $(BENCH_ARGS)

bench-setup: .venv-bench/.stamp ## make .venv-bench: syncline, torch and the peers

.venv-bench/.stamp: pyproject.toml constraints.txt
	@$(call venv,.venv-bench)
	@echo "installing torch (once)"
	@$(call install,$(BENCH_BIN),$(TORCH))
	@echo "installing syncline and its peers (once)"
	@$(call install,$(BENCH_BIN),-e ".[$(BENCH_EXTRAS)]")
# Daft's metadata excludes the versions of pyarrow and tqdm that all others are measured with, though it works with them: it comes alone.
	@$(call install,$(BENCH_BIN),--no-deps daft)
	@touch $@

clean: ## remove what the other targets made
	@rm -rf .venv .venv-bench .pytest_cache .mypy_cache .ruff_cache build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
