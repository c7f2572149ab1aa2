# Each target first sets up what it needs: a virtual environment in .venv with the project installed.
PYTHON ?= python3
VENV ?= .venv
INSTALLED = $(VENV)/installed
DEV_INSTALLED = $(VENV)/dev-installed
DOCS_INSTALLED = $(VENV)/docs-installed
PYTEST = $(VENV)/bin/python -m pytest -n 2 --dist loadfile # two processes; each file runs in one of them

.PHONY: quickstart test check docs help

quickstart: $(INSTALLED) ## train, score and use a small model, which takes some minutes
	PATH="$(abspath $(VENV))/bin:$$PATH" scripts/quickstart.sh

test: $(DEV_INSTALLED) ## run the tests that need neither a network nor a GPU
	$(PYTEST)

check: $(DEV_INSTALLED) ## check style and types, and run the tests
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(PYTEST)

docs: $(DOCS_INSTALLED) ## build the documentation into site/ and fail on a dead link
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build

help: ## list these targets
	@sed -n 's/^\([a-z]*\):.*## /\1: /p' Makefile

$(INSTALLED): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --editable .
	touch $@

$(DEV_INSTALLED): $(INSTALLED)
	$(VENV)/bin/pip install --quiet --editable '.[dev]'
	touch $@

$(DOCS_INSTALLED): $(INSTALLED)
	$(VENV)/bin/pip install --quiet --editable '.[docs]'
	touch $@
