# Each target sets up what it needs: a virtual environment in .venv with the project installed.
PYTHON ?= python3
VENV ?= .venv
INSTALLED = $(VENV)/installed
DEVELOPS = $(VENV)/develops
PYTEST = $(VENV)/bin/python -m pytest -n 2 --dist loadfile # two processes, a file in one of them

.PHONY: quickstart test check

quickstart: $(INSTALLED) ## train, evaluate and use a small model: about ten minutes of training
	PATH="$(abspath $(VENV))/bin:$$PATH" scripts/quickstart.sh

test: $(DEVELOPS) ## the tests that need neither network nor GPU
	$(PYTEST)

check: $(DEVELOPS) ## all that must be clean before a commit
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(PYTEST)

$(INSTALLED): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --editable .
	touch $@

$(DEVELOPS): $(INSTALLED) ## the tests need the engines that models are exported to, and more
	$(VENV)/bin/pip install --quiet --editable '.[dev]'
	touch $@
