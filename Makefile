# Targets for people and for CI; `make help` lists them. Each target sets up what it needs, once.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Interpreter for the virtual environments: the first of these that runs and is at least 3.10.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.10; do \
	$$p -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1 && { echo $$p; break; }; done)
BIN := .venv/bin
BENCH_BIN := .venv-bench/bin
TORCH := torch==2.13.0
EXTRAS := test,lint,examples,cli,dashboard,docs
BENCH_EXTRAS := bench,dashboard,rl,serve
CONSTRAINTS := constraints.txt
BENCH_ARGS ?=
TEST_ARGS ?=
KILLS ?= 20
SEED ?= 1

# pip retries connections, and each install is tried three times. Two --quiet print errors only.
# --no-compile saves a minute: modules are compiled when they are imported.
PIP_FLAGS = --no-compile --disable-pip-version-check --retries 10 --timeout 60 --no-input --quiet --quiet -c $(CONSTRAINTS)
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

.PHONY: help setup demo serve-demo test test-all test-processes test-long test-browser test-cluster chaos lint docs docs-serve bench bench-setup clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

setup: .venv/.stamp ## create .venv with everything that demo, test and lint need

# Torch is installed first and separately: the user chooses its build, so it is not a dependency.
.venv/.stamp: pyproject.toml constraints.txt
	@$(call venv,.venv)
	@echo "installing torch (once)"
	@$(call install,$(BIN),$(TORCH))
	@echo "installing syncline and its tools (once)"
	@$(call install,$(BIN),-e ".[$(EXTRAS)]")
	@touch $@

demo: .venv/.stamp ## train a vision transformer on CIFAR-10 with two workers
	@$(BIN)/python examples/train_vit.py

serve-demo: .venv/.stamp ## serve the model of `make demo` with a web page at http://127.0.0.1:8000
	@$(BIN)/python examples/serve_vit.py

test: .venv/.stamp ## run the fast tests (TEST_ARGS="-k name" chooses)
	@$(BIN)/python -m pytest $(TEST_ARGS)

test-all: test test-processes test-long test-browser test-cluster ## run all tests

test-processes: .venv/.stamp ## run the tests that start worker processes, besides those of `make test`
	@$(BIN)/python -m pytest -m "processes and not (promise or long or cluster or browser)" $(TEST_ARGS)

test-long: .venv/.stamp ## run the slow tests: repeated kills, large libraries
	@$(BIN)/python -m pytest -m "long and not cluster" $(TEST_ARGS)

# A signal does not reach a test that hangs inside Ray, so a thread ends its process.
test-cluster: .venv/.stamp ## run the tests that start Ray clusters, two files at a time
	@$(BIN)/python -m pytest --dist loadfile --timeout-method thread -m cluster $(TEST_ARGS)

test-browser: .venv/.stamp ## run the tests that look at the dashboard in Chromium, one at a time
	@$(BIN)/python -m pytest -n 0 -m browser tests/dashboard/browser $(TEST_ARGS)

# Each kill takes some seconds. A failure prints the seed that repeats it.
chaos: .venv/.stamp ## kill trainings and searches at random moments (KILLS=20 SEED=1) and compare the outcome
	@CHAOS_KILLS=$(KILLS) CHAOS_SEED=$(SEED) $(BIN)/python -m pytest -m long tests/train/chaos tests/train/snapshots tests/tune/chaos $(TEST_ARGS)

lint: .venv/.stamp ## run ruff, mypy, the import law and the documentation build
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q -n 0 tests/test_import_law.py
	@$(MAKE) --no-print-directory docs

# Silences a warning of the theme about another version of mkdocs.
docs: .venv/.stamp ## build the documentation into build/docs; a broken link or docstring is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

docs-serve: .venv/.stamp ## serve the documentation while you write it
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

bench: .venv-bench/.stamp ## run the benchmarks side by side with peers (BENCH_ARGS="..." is passed on)
	@$(BENCH_BIN)/python -m bench $(BENCH_ARGS)

bench-setup: .venv-bench/.stamp ## create .venv-bench with syncline, torch and the peers

# RLlib and Stable-Baselines3 need an older gymnasium than the one that the tests run with.
.venv-bench/.stamp: CONSTRAINTS = .venv-bench/constraints.txt
.venv-bench/.stamp: pyproject.toml constraints.txt
	@$(call venv,.venv-bench)
	@grep -v '^gymnasium==' constraints.txt > $(CONSTRAINTS)
	@echo "installing torch (once)"
	@$(call install,$(BENCH_BIN),$(TORCH))
	@echo "installing syncline and its peers (once)"
	@$(call install,$(BENCH_BIN),-e ".[$(BENCH_EXTRAS)]")
# Daft works with the versions of pyarrow and tqdm that the others use, but its metadata excludes them.
	@$(call install,$(BENCH_BIN),--no-deps daft)
	@touch $@

clean: ## remove everything that the other targets created
	@rm -rf .venv .venv-bench .pytest_cache .mypy_cache .ruff_cache build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
