PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PAPER ?= all
# For `make reproduce`: mini (seconds), quick (minutes) or full (a night); ONLY=fig4 for one part of a paper.
SIZE ?= full
# The PyTorch that tests and reproductions install first: a looser request pulls gigabytes of CUDA packages on Linux.
TORCH ?= torch==2.13.0
# A generator of synthetic tables that one test audits; dosimeter itself never imports it.
CTGAN ?= ctgan>=0.12
CORE := .venv-core
# Ray gives its servers 30 s to start, which a slow or busy machine misses. Some virtual machines announce AMX and stop a
# program that uses it, which torch does for bfloat16.
SUITE := OMP_NUM_THREADS=1 ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 RAY_gcs_server_port_wait_time_s=180 RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S=180

# The tests of one file stay in one process, so that what they share is made once. With two processes on two cores a
# sixth of `make test` is waiting, for Ray, browsers and workers: so it has three.
SHARED := --dist loadfile --no-loadscope-reorder

# The suite starts hundreds of processes; without files of bytecode each would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

# pip compiles what it installs on one core, tests of packages included: about 5 ms for each of 25,000 files. $(call compile,folder)
# does it on all cores; a file that is no Python of this version stops nothing, with pip neither.
INSTALL := install --quiet --no-compile
compile = $(1)/bin/python -m compileall -qq -j 0 -x '/tests/' $(1)/lib || true

.PHONY: demo test suite test-core coverage chaos lint style types bench docs notebooks dist journeys reproduce coverage-table tables picture clean

# The stamps depend on pyproject.toml, so a changed dependency installs again.
$(VENV)/.core: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip $(INSTALL) --editable '.[report]'
	$(call compile,$(VENV))
	touch $@

$(VENV)/.test: $(VENV)/.core
	$(BIN)/pip $(INSTALL) '$(TORCH)'
	$(BIN)/pip $(INSTALL) --editable '.[test,docs,torch,text,ray,tabular]' '$(CTGAN)'
	$(call compile,$(VENV))
	touch $@

$(CORE)/.test: pyproject.toml
	$(PYTHON) -m venv $(CORE)
	$(CORE)/bin/pip $(INSTALL) --editable '.[test]'
	$(call compile,$(CORE))
	touch $@

demo: $(VENV)/.core
	$(BIN)/dosimeter demo

# ruff takes a second and goes first. mypy takes a minute of one core: it runs beside the suite.
test: style
	$(MAKE) --no-print-directory --jobs 2 types suite

suite: $(VENV)/.test
	$(SUITE) $(BIN)/python -m pytest -n 3 $(SHARED)

# The suite for people without PyTorch, transformers and Ray, in an environment of its own. What is marked slow or once
# is the same with and without these packages, as are tests of the numeric layers (tests/conftest.py): `make test` runs it.
test-core: $(CORE)/.test
	OMP_NUM_THREADS=1 $(CORE)/bin/python -m pytest -n 2 $(SHARED) -m 'not slow and not once'

# The share of lines and branches that the suite runs; the number goes into CONTRIBUTING.md. Tests marked slow repeat
# experiments and start browsers: traced they would take an hour, and most of their lines are run by others.
coverage: $(VENV)/.test
	$(SUITE) $(BIN)/python -m pytest -n 2 $(SHARED) -m 'not slow' --cov --cov-report=
	$(BIN)/coverage report --skip-covered --sort=cover
	$(BIN)/python scripts/line_coverage.py

# Kills, damaged files, full disks, hostile input: about an hour on two cores, with counts at the end.
chaos: $(VENV)/.test
	DOSIMETER_CHAOS=long OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/chaos tests/fuzz

lint: style types

style: $(VENV)/.test
	$(BIN)/ruff check src tests bench scripts experiments
	$(BIN)/ruff format --check src tests bench scripts experiments
	$(BIN)/lint-imports

types: $(VENV)/.test
	$(BIN)/mypy

bench:
	$(PYTHON) bench/run.py

docs: $(VENV)/.core
	$(BIN)/pip install --quiet --editable '.[docs]'
	$(BIN)/mkdocs build --strict

# Runs the notebooks of docs/notebooks and keeps what they print.
notebooks: $(VENV)/.test
	$(BIN)/python scripts/notebooks.py

# Wheel and sdist, and the wheel tried in an environment of its own.
dist:
	$(PYTHON) scripts/dist.py

# Which files four runs pass through; the numbers go into docs/architecture.md.
journeys: $(VENV)/.test
	$(BIN)/python scripts/journeys.py --write

reproduce: $(VENV)/.core
	$(BIN)/pip install --quiet '$(TORCH)'
	$(BIN)/pip install --quiet --editable '.[report,torch,text]'
	$(BIN)/python scripts/reproduce.py --paper $(PAPER) $(if $(SIZE),--$(SIZE)) $(if $(ONLY),--only $(ONLY))

coverage-table: $(VENV)/.core
	$(BIN)/python scripts/coverage_table.py --trials 150 --records 1000

tables: $(VENV)/.core
	$(BIN)/python scripts/calibration_tables.py

picture: $(VENV)/.core
	$(BIN)/python scripts/readme_picture.py

clean:
	rm -rf $(VENV) $(CORE) build dist
