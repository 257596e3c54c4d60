# Two commands do everything on a machine with python3 and make: `make demo` and `make test`.
# uv is used where it is installed, python's own venv and pip otherwise; both read pyproject.toml only.

VENV ?= .venv
PYTHON ?= $(firstword $(foreach name,python3 python3.13 python3.12 python3.11 python3.14,$(shell \
	$(name) -c 'import sys; sys.version_info >= (3, 11) and print(sys.executable)' 2>/dev/null)))
UV := $(shell command -v uv 2>/dev/null)
WORKERS ?= 2
ARGS ?=
BENCH ?= import_time checkpoints context mastra observation observation_fuzz

BIN := $(VENV)/bin
EXTRAS := postgres,local,encryption,inspector,notebooks

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test lint types tests docs bench clean
.DEFAULT_GOAL := help

help:
	@echo "make demo   set up, and watch an agent remember across two processes (no API key)"
	@echo "make test   set up, and run every check: lint, types, tests, notebooks, examples of the docs"
	@echo "make lint | types | tests    one of them; make tests ARGS='-k threads -x' passes options to pytest"
	@echo "make docs   write the generated parts of the documentation anew"
	@echo "make bench  run the benchmarks that need no data of yours (BENCH='import_time context': these only)"
	@echo "make clean  remove the virtual environment and everything that tools left"

demo: $(VENV)/.installed
	$(BIN)/langchain-mastra-memory demo $(ARGS)

test: lint types tests

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

tests: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

docs: $(VENV)/.installed-dev
	$(BIN)/python -m tests.docs.generated

bench: $(VENV)/.installed-bench
	@failed=; for name in $(BENCH); do echo "== $$name"; $(BIN)/python "benchmarks/$$name.py" || failed="$$failed $$name"; done; \
	test -z "$$failed" || { echo "missed a target or failed:$$failed"; exit 1; }

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; name one with PYTHON=/path/to/python3"; exit 1; }
ifdef UV
	$(UV) venv --quiet --python "$(PYTHON)" "$(VENV)"
else
	"$(PYTHON)" -m venv "$(VENV)"
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"  # the first that knows dependency groups
endif

ifdef UV
INSTALL = $(UV) pip install --quiet --compile-bytecode --python "$(BIN)/python"
else
INSTALL = $(BIN)/python -m pip install --quiet
endif

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(INSTALL) --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(VENV)/bin/python
	$(INSTALL) --editable ".[$(EXTRAS)]" --group dev
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-bench: pyproject.toml | $(VENV)/bin/python
	$(INSTALL) --editable ".[$(EXTRAS)]" --group dev --group bench --group bench-recall
	@touch $@ $(VENV)/.installed-dev $(VENV)/.installed
