PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PAPER ?= all

.PHONY: demo test lint bench reproduce coverage-table tables clean

# The stamp depends on pyproject.toml, so a changed dependency installs again.
$(VENV)/.core: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable .
	touch $@

$(VENV)/.test: $(VENV)/.core
	$(BIN)/pip install --quiet --editable '.[test]'
	touch $@

demo: $(VENV)/.core
	$(BIN)/dosimeter demo

test: lint
	$(BIN)/python -m pytest -n 2

lint: $(VENV)/.test
	$(BIN)/ruff check src tests bench scripts
	$(BIN)/ruff format --check src tests bench scripts
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.core
	$(PYTHON) bench/run.py

reproduce: $(VENV)/.core
	$(BIN)/python scripts/reproduce.py --paper $(PAPER)

coverage-table: $(VENV)/.core
	$(BIN)/python scripts/coverage_table.py

tables: $(VENV)/.core
	$(BIN)/python scripts/calibration_tables.py

clean:
	rm -rf $(VENV) build dist
