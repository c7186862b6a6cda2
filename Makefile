PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PAPER ?= all
# mini (seconds), quick (minutes) or full (a night) for `make reproduce`.
SIZE ?= full
# The PyTorch that tests and reproductions install first: a looser request pulls gigabytes of CUDA packages on Linux.
TORCH ?= torch==2.13.0
# With RAY=1 the tests that need a Ray cluster run too; else they are skipped.
RAY ?=
CORE := .venv-core

.PHONY: demo test test-core chaos lint bench docs reproduce coverage-table tables picture clean

# The stamps depend on pyproject.toml, so a changed dependency installs again.
$(VENV)/.core: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[report]'
	touch $@

$(VENV)/.test: $(VENV)/.core
	$(BIN)/pip install --quiet '$(TORCH)'
	$(BIN)/pip install --quiet --editable '.[test,torch,text$(if $(RAY),$(comma)ray)]'
	touch $@

$(CORE)/.test: pyproject.toml
	$(PYTHON) -m venv $(CORE)
	$(CORE)/bin/pip install --quiet --editable '.[test]'
	touch $@

comma := ,

demo: $(VENV)/.core
	$(BIN)/dosimeter demo

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

# The suite for people without PyTorch, transformers and Ray, in an environment of its own.
test-core: $(CORE)/.test
	OMP_NUM_THREADS=1 $(CORE)/bin/python -m pytest -n 2

# Kills, damaged files, full disks, hostile input: about an hour on two cores, with counts at the end.
chaos: $(VENV)/.test
	DOSIMETER_CHAOS=long OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/chaos tests/fuzz

lint: $(VENV)/.test
	$(BIN)/ruff check src tests bench scripts experiments
	$(BIN)/ruff format --check src tests bench scripts experiments
	$(BIN)/mypy
	$(BIN)/lint-imports

bench:
	$(PYTHON) bench/run.py

docs: $(VENV)/.core
	$(BIN)/pip install --quiet --editable '.[docs]'
	$(BIN)/mkdocs build --strict

reproduce: $(VENV)/.core
	$(BIN)/pip install --quiet '$(TORCH)'
	$(BIN)/pip install --quiet --editable '.[report,torch,text]'
	$(BIN)/python scripts/reproduce.py --paper $(PAPER) $(if $(SIZE),--$(SIZE))

coverage-table: $(VENV)/.core
	$(BIN)/python scripts/coverage_table.py --trials 150 --records 1000

tables: $(VENV)/.core
	$(BIN)/python scripts/calibration_tables.py

picture: $(VENV)/.core
	$(BIN)/python scripts/readme_picture.py

clean:
	rm -rf $(VENV) $(CORE) build dist
