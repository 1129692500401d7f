# `make demo` on a fresh clone is all it takes: everything below builds its own virtual environment first.
#
# .venv is made from requirements.lock: exact versions with hashes of everything, tools included. It is made again
# when the lock or pyproject.toml changes; otherwise nothing is downloaded.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check --no-input

.PHONY: help demo test lint bench venv lock clean

help:
	@echo "make demo    a conversation over a virtual mesh, no hardware, no key"
	@echo "make test    every test"
	@echo "make lint    ruff and mypy"
	@echo "make bench   measure; writes benchmarks/results.json"
	@echo "make venv    only the virtual environment"
	@echo "make lock    resolve the dependencies anew (needs uv)"
	@echo "make clean   remove what make has built"

demo: venv
	@$(BIN)/meshai demo

test: venv
	@$(BIN)/python -m pytest -q

lint: venv
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

bench: venv
	@$(BIN)/python -m benchmarks

venv: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' || { \
	  echo "MeshAI needs Python 3.11 to 3.14; this is: $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { \
	  echo "Python cannot make virtual environments here. On Debian: sudo apt install python3-venv"; exit 1; }
	@echo "Setting up $(VENV) (once; a minute or two) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install --require-hashes --requirement requirements.lock
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

# The newest versions that pyproject.toml allows, for every platform and Python it supports.
lock:
	uv pip compile --quiet --universal --generate-hashes --no-annotate --python-version 3.11 --extra dev \
	  --upgrade --custom-compile-command "make lock" --output-file requirements.lock pyproject.toml

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
