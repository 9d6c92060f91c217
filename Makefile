# Everything runs in .venv; nothing is installed system-wide.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTHON ?=
PYTEST_ARGS ?=
PORT ?= 3000

.PHONY: help setup demo ui test lint format docs bench clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1|/' \
	  | while IFS='|' read -r target text; do printf '  make %-8s %s\n' "$$target" "$$text"; done

setup: $(STAMP) ## create .venv with the locked dependencies and the package (PYTHON=... picks the interpreter)

# A candidate is run, not only looked up: a version manager may offer names that do not start.
# The lock is complete, so both installers take it without resolving (--no-deps).
$(STAMP): requirements.lock pyproject.toml
	@uv=$$(command -v uv || true); needs="sys"; [[ -n "$$uv" ]] || needs="sys, venv, ensurepip"; \
	probe="import $$needs; sys.exit(sys.version_info < (3, 11))"; python=; \
	for candidate in $(if $(PYTHON),$(PYTHON),python3.13 python3.12 python3.11 python3); do \
	  if "$$candidate" -c "$$probe" >/dev/null 2>&1; then \
	    python=$$("$$candidate" -c 'import sys; print(sys.executable)'); break; \
	  fi; \
	done; \
	if [[ -z "$$python" ]]; then \
	  echo "setup: no usable Python >= 3.11 among: $(if $(PYTHON),$(PYTHON),python3.13 python3.12 python3.11 python3)." >&2; \
	  echo "setup: install one (with its venv module, or with uv on PATH), or run: make setup PYTHON=/path/to/python" >&2; \
	  exit 1; \
	fi; \
	echo "setup: $$("$$python" -V) with $${uv:+uv}$$([[ -n "$$uv" ]] || echo pip)"; \
	rm -rf $(VENV); \
	if [[ -n "$$uv" ]]; then \
	  uv venv --quiet --python "$$python" $(VENV); \
	  uv pip install --quiet --python $(BIN)/python --no-deps --require-hashes -r requirements.lock; \
	  uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .; \
	else \
	  "$$python" -m venv $(VENV); \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input --no-deps --require-hashes -r requirements.lock; \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input --no-deps --no-build-isolation -e .; \
	fi
	@touch $@

demo: $(STAMP) ## fill a lake under demo_lake/ (MAINTENANCE_LAKE=...), maintain it with Dagster, show before and after
	$(BIN)/python -m examples.demo

ui: $(STAMP) ## Dagster's UI on that lake, on port 3000 (PORT=...), its home in .dagster_home/
	@$(BIN)/python -m examples.ui --port $(PORT)

test: lint ## lint, types and import rules, then all tests (PYTEST_ARGS=... is passed on)
	$(BIN)/python -m pytest -n 2 --dist loadgroup $(PYTEST_ARGS)

lint: $(STAMP) ## ruff, mypy and the import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP) ## rewrite the sources in the one format, with the safe lint fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP) ## write docs/api.md anew from the docstrings
	$(BIN)/python docs/generate_api.py

bench: $(STAMP) ## time and memory next to other tools, written to benchmarks/RESULTS.md
	$(BIN)/python -m benchmarks

clean: ## remove .venv, caches, build output and the demo lake
	rm -rf $(VENV) demo_lake dist build .dagster_home .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
