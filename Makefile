# The developer's commands. Everything is installed into .venv and nothing outside this folder is changed.
# PYTHON=path chooses the interpreter, T=path narrows a test run: make test T=tests/state

.DEFAULT_GOAL := help
.NOTPARALLEL:
.SUFFIXES:
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

BIN := .venv/bin
T ?= tests
SOURCES := src tests examples bench tools
PIP := -m pip install --quiet --quiet --disable-pip-version-check

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z%-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: .venv/core ## install the core, check its health, run the weather agent
	@$(BIN)/agent-infra health
	@$(BIN)/python examples/weather/run.py
	@echo
	@echo "Where to look next:"
	@echo "  cd examples/weather    what you have just seen run: state_graph.py, weather_action.yaml, run.py"
	@echo "    ../../$(BIN)/agent-infra session show weather_demo_001    everything that happened, as a tree"
	@echo "    ../../$(BIN)/agent-infra evidence show CID                what one call left"
	@echo "  docs/architecture.md   the walk of that request through the code"
	@echo "  $(BIN)/agent-infra --help"

test: .venv/dev .cache/bfcl ## run the tests, small counts
	@$(BIN)/python -m pytest -n 2 --dist loadgroup $(T)

test-full: .venv/dev .cache/bfcl ## run all tests, full counts: containers, databases, browsers
	@AGENT_INFRA_TEST_TIER=full $(BIN)/python -m pytest -n 2 --dist loadgroup $(T)

check: .venv/dev ## style, types, layers, sizes; changes nothing
	@echo "ruff:";          $(BIN)/ruff check $(wildcard $(SOURCES))
	@echo "ruff format:";   $(BIN)/ruff format --check $(wildcard $(SOURCES))
	@echo "pyright:";       PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright
	@echo "import-linter:"; $(BIN)/lint-imports --no-logo --no-cache
	@echo "house rules:";   $(BIN)/python tools/check_house.py src/agent_infra

format: .venv/dev ## put the code into the house style
	@$(BIN)/ruff check --fix $(wildcard $(SOURCES))
	@$(BIN)/ruff format $(wildcard $(SOURCES))

bench: .venv/dev ## measure against peers: one JSON file a benchmark, in reports/
	@mkdir -p reports
	@for file in bench/[a-z]*.py; do \
		echo "$$file"; $(BIN)/python $$file | tee reports/$$(basename $$file .py).json; \
	done

wheel: .venv/dev ## build the wheel and the source archive into dist/
	@$(BIN)/python -m build --no-isolation --outdir dist

clean: ## remove .venv, caches and everything built
	rm -rf .venv .cache dist build reports .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The files .venv/core and .venv/dev mark what is installed: a second `make test` starts at once, and a changed
# pyproject.toml installs anew.

.venv/core: .venv/bin/python pyproject.toml
	@echo "installing the core into .venv"
	@$(BIN)/python $(PIP) --editable .
	@touch $@

.venv/dev: .venv/bin/python pyproject.toml
	@echo "installing the core and what its checks and tests need into .venv"
	@$(BIN)/python $(PIP) --editable '.[dev]'
	@touch .venv/core $@

# Its data and checker, without the forty packages that it would bring; mpmath is what its calculator computes with.
.cache/bfcl: | .venv/bin/python
	@echo "fetching the function-calling leaderboard's data into $@"
	@$(BIN)/python $(PIP) --no-deps --target $@ 'bfcl-eval==2026.3.23' 'mpmath>=1.3,<2'

.venv/bin/python:
	@python=$$(tools/find_python) && echo "making .venv with $$python" && $$python -m venv .venv

.PHONY: help demo test test-full check format bench wheel clean
