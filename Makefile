# Each target makes what it needs; from nothing but Python 3.11+ and make, `make demo` ends with pictures and
# a video.
#
#   make demo        set-up, everything started on free ports, three pictures and a talking video in out/
#   make test        the tests that take seconds          make test-slow   the ones that take longer
#   make check       format, lint, types, import rules, generated stubs
#   make simulate    N=1000 FIRST=0: stories of the whole service under faults, seed by seed
#   make bench       the dispatch benchmark (wrk)         make proto       generate wire/'s stubs again
#   make peers       the field's own SDKs, each in an environment of its own under .peers/; the tests call them
#   make .venv       the virtual environment with everything in it; the others make it when they need it
#   make clean       removes what the targets made; keeps .stoker/, the data folder

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
EXTRAS := models,agent,control,dev
PYTEST := $(BIN)/python -m pytest
MYPY := MYPYPATH=src $(BIN)/mypy

# The tests start thousands of processes; where this is set, each would compile all that it imports.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help .venv demo test test-slow simulate check bench proto peers clean
.DELETE_ON_ERROR:

help:
	@sed -n '4,11s/^# *//p' Makefile

$(STAMP): pyproject.toml constraints.txt .ci/venv
	@.ci/venv "$(PYTHON)" "$(VENV)"
	$(BIN)/pip install -q --disable-pip-version-check --retries 10 --timeout 60 \
		-c constraints.txt -e '.[$(EXTRAS)]'
	@touch $@

.venv: $(STAMP)

demo: $(STAMP)
	$(BIN)/python -P deploy/demo.py

test: $(STAMP)
	@.ci/packages gcc
	@.ci/peers "$(PYTHON)"
	PYTHONHASHSEED=0 $(PYTEST) tests -m "not slow" -n 2 --dist loadfile

test-slow: $(STAMP)
	@.ci/packages gcc ffmpeg
	@.ci/peers "$(PYTHON)"
	PYTHONHASHSEED=0 $(PYTEST) tests -m slow --timeout 600 -o faulthandler_timeout=600

simulate: $(STAMP)
	@PYTHONHASHSEED=0 $(BIN)/python -P tests/simulation/run.py --first $(or $(FIRST),0) --number $(or $(N),1000)

check: $(STAMP)
	$(BIN)/ruff format --check -q --exclude '*.md' .
	$(BIN)/ruff check -q .
	$(MYPY)
	PYTHONPATH=src $(BIN)/lint-imports --no-logo
	@.ci/proto --check "$(BIN)/python"

peers:
	@.ci/peers "$(PYTHON)"

bench: $(STAMP)
	@.ci/packages wrk
	$(BIN)/python bench/dispatch.py

proto: $(STAMP)
	@.ci/proto --write "$(BIN)/python"

clean:
	rm -rf $(VENV) .peers out build dist src/*.egg-info
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
