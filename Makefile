# Each target sets up what it needs: a virtual environment in .venv with the project installed.
PYTHON ?= python3
VENV ?= .venv
INSTALLED = $(VENV)/installed
DEVELOPS = $(VENV)/develops

.PHONY: quickstart test check

quickstart: $(INSTALLED) ## train, evaluate and use a small model: about eight minutes of training
	PATH="$(abspath $(VENV))/bin:$$PATH" scripts/quickstart.sh

test: $(DEVELOPS) ## the tests that need neither network nor GPU
	$(VENV)/bin/python -m pytest

check: $(DEVELOPS) ## all that must be clean before a commit
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/python -m pytest

$(INSTALLED): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --editable .
	touch $@

$(DEVELOPS): $(INSTALLED) ## the tests need the engines that models are exported to, and more
	$(VENV)/bin/pip install --quiet --editable '.[dev]'
	touch $@
