# Each target makes what it needs; from nothing but Python 3.11+ and make, `make demo` ends with images and
# a video.
#
#   make demo        set-up, everything started on free ports, three images and a talking video in out/
#   make test        the tests that take seconds
#   make test-models the tests of models/ with the instructions of another processor
#   make test-slow   the ones that take longer, and all examples of those that draw them; WITHIN_S=3000 begins
#                    no file later, and names those that it leaves out
#   make check       format, lint, types, import rules, generated stubs, the drawing of the rooms, docstrings
#   make simulate    N=1000 FIRST=0: stories of the whole service under faults, seed by seed; SPARE=--spare: with a second control
#   make bench       the dispatch benchmark (wrk)         make proto       generate wire/'s stubs again
#   make docs        the documentation as a site in build/docs, every link checked
#   make package  the sdist and the wheel in dist/, looked at, and tried in empty environments
#   make rooms       draw the rooms of DESIGN.md again
#   make peers       the field's own SDKs, each in an environment of its own under .peers/; the tests call them
#   make fuzz        N=1000000 inputs for what agents read of workers, and control of agents
#   make .venv       the virtual environment with everything in it; the others make it when they need it
#   make clean       removes what the targets made; keeps .stoker/, the data folder

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
EXTRAS := models,agent,control,page,traces,dev
PYTEST := $(BIN)/python -m pytest
MYPY := MYPYPATH=src $(BIN)/mypy

# The tests start thousands of processes; where this is set, each would compile all that it imports.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help .venv .set-up demo test test-models test-slow simulate fuzz check bench proto rooms docs package pictures peers clean
.DELETE_ON_ERROR:

help:
	@sed -n '4,18s/^# *//p' Makefile

$(STAMP): pyproject.toml constraints.txt .ci/venv
	@.ci/venv "$(PYTHON)" "$(VENV)"
	$(BIN)/pip install -q --disable-pip-version-check --retries 10 --timeout 60 --no-compile \
		-c constraints.txt -e '.[$(EXTRAS)]'
	@$(BIN)/python -P .ci/compile 2>/dev/null
	@touch $@

.venv: $(STAMP)

demo: $(STAMP)
	$(BIN)/python -P deploy/demo.py

# The documentation's pictures of the page, from the run of its tests.
pictures: $(STAMP)
	mkdir -p docs/page-pictures
	STOKER_PAGE_PICTURES=$(CURDIR)/docs/page-pictures $(BIN)/python -P -m pytest -q tests/system/page

# The two take about as long; .ci/venv goes first since both may need its apt package.
.set-up:
	@.ci/venv "$(PYTHON)" "$(VENV)"
	@.ci/peers "$(PYTHON)" & $(MAKE) --no-print-directory $(STAMP); made=$$?; wait; exit $$made

# On two cores a third process works while others wait.
test: .set-up
	@.ci/packages gcc tmux
	PYTHONHASHSEED=0 $(PYTEST) tests -m "not slow" --processes 3

test-models: .set-up
	@.ci/packages gcc
	env $$(.ci/other-processor) PYTHONHASHSEED=0 $(PYTEST) tests/models -m "not slow or numbers" --processes 3

test-slow: .set-up
	@.ci/packages gcc ffmpeg tmux prometheus
	PYTHONHASHSEED=0 STOKER_TESTS_EXECUTE=1 $(PYTEST) tests -m "slow or hypothesis" --hypothesis-profile full \
		--timeout 600 -o faulthandler_timeout=600 --processes 2 $(if $(WITHIN_S),--begin-within $(WITHIN_S))

simulate: $(STAMP)
	@PYTHONHASHSEED=0 $(BIN)/python -P tests/simulation/run.py --first $(or $(FIRST),0) --number $(or $(N),1000) $(SPARE)

fuzz: $(STAMP)
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e '.[fuzz]'
	$(BIN)/python -P tests/fuzz/frames.py -atheris_runs=$(or $(N),1000000) -max_len=400
	$(BIN)/python -P tests/fuzz/node_messages.py -runs=$(or $(N),1000000) -max_len=4096 out/fuzz-node-messages

check: $(STAMP)
	$(BIN)/ruff format --check -q --exclude '*.md' .
	$(BIN)/ruff check -q .
	$(MYPY)
	PYTHONPATH=src $(BIN)/lint-imports --no-logo
	@.ci/proto --check "$(BIN)/python"
	@$(BIN)/python .ci/rooms.py --check
	@$(BIN)/python .ci/words.py

docs: $(STAMP)
	@$(BIN)/pip install -q --disable-pip-version-check --no-compile -c constraints.txt -e '.[docs]'
	$(BIN)/zensical build --clean --strict -f mkdocs.yml

package: $(STAMP)
	@$(BIN)/python .ci/package.py

peers:
	@.ci/peers "$(PYTHON)"

bench: $(STAMP)
	@.ci/packages wrk
	$(BIN)/python bench/dispatch.py

rooms: $(STAMP)
	@$(BIN)/python .ci/rooms.py --write

proto: $(STAMP)
	@.ci/proto --write "$(BIN)/python"

clean:
	rm -rf $(VENV) .peers out build dist src/*.egg-info
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
