# Everything runs in .venv, made on first use. Needs Python 3.11 or newer, git and make.
PYTHON ?= python3
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help demo test lint typing bench build clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  %-8s %s\n", $$1, $$2}'

demo: .venv/ready ## run the main job on this machine: emulator, replay, collector, attribution, report
	$(BIN)/ramptrace demo

test: .venv/ready ## run all tests
	$(BIN)/python -m tests.side_by_side

lint: .venv/ready ## check style and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

typing: .venv/ready ## check types
	$(BIN)/mypy

bench: .venv/ready ## measure, against a baseline, by hand (timings are not part of the tests)
	$(BIN)/python -m tests.bench

build: .venv/ready ## build the wheel and the source distribution into dist/
	$(BIN)/python -m build --no-isolation

clean: ## remove the environment and what was built
	rm -rf .venv dist build

.venv/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "ramptrace needs Python 3.11 or newer; name one with make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || \
	  { echo "this Python cannot make environments; on Debian: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade --constraint constraints.txt pip hatchling editables
	$(BIN)/python -m pip install --quiet --no-build-isolation --constraint constraints.txt --editable '.[report]' --group dev
	@touch $@
