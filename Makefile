# Everything a newcomer needs: `make demo` and `make test` set up the environment by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BACKENDS := .venv-backends
CLUSTERS := .venv-clusters
REMOTE := .venv-remote

.PHONY: setup demo test lint format test-learning test-faults test-backends test-clusters test-remote stubs golden-record golden-check bench clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

demo: setup
	$(BIN)/rl-training train iql/pendulum --run-dir runs/demo --overwrite
	$(BIN)/rl-training evaluate runs/demo --episodes 20
	$(BIN)/rl-training predict runs/demo --obs '[1.0, 0.0, 0.0]'
	$(BIN)/rl-training report runs/demo --out runs/demo.html
	@echo "The run is in runs/demo: config.yaml, metrics.jsonl, checkpoints/. Open runs/demo.html in a browser: its curves, and the policy at work."
	@echo "To go on: source $(BIN)/activate, then rl-training list"

lint: setup
	$(BIN)/ruff check src tests examples benchmarks tools
	$(BIN)/ruff format --check src tests examples benchmarks tools
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix src tests examples benchmarks tools
	$(BIN)/ruff format src tests examples benchmarks tools

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

test-learning: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m learning --timeout 2700 -rP

test-faults: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m faults --timeout 2400 --faults-page new

# The libraries behind --log, in an environment of their own: their requirements contradict constraints.txt.
$(BACKENDS)/.installed: pyproject.toml constraints.txt
	test -x $(BACKENDS)/bin/python || $(PYTHON) -m venv $(BACKENDS)
	$(BACKENDS)/bin/python -m pip install --quiet --constraint constraints.txt torch
	$(BACKENDS)/bin/python -m pip install --quiet --editable ".[tensorboard,wandb,mlflow,trackio]" pytest pytest-timeout pytest-xdist
	touch $@

test-backends: $(BACKENDS)/.installed
	OMP_NUM_THREADS=1 $(BACKENDS)/bin/python -m pytest -n 2 tests/tracking -rs

# Ray and submitit, in an environment of their own; a real Slurm is tested where its programs are installed and the user is root.
$(CLUSTERS)/.installed: pyproject.toml constraints.txt
	test -x $(CLUSTERS)/bin/python || $(PYTHON) -m venv $(CLUSTERS)
	$(CLUSTERS)/bin/python -m pip install --quiet --constraint constraints.txt torch
	$(CLUSTERS)/bin/python -m pip install --quiet --constraint constraints.txt --editable ".[ray,slurm,sweep]" pytest pytest-timeout
	touch $@

test-clusters: $(CLUSTERS)/.installed
	OMP_NUM_THREADS=1 $(CLUSTERS)/bin/python -m pytest tests/tuning/test_ray.py tests/tuning/test_slurm.py -rs

# Object stores on the loopback address, in an environment of its own: moto with what its server needs for S3 alone, and one like Google's.
$(REMOTE)/.installed: pyproject.toml constraints.txt
	test -x $(REMOTE)/bin/python || $(PYTHON) -m venv $(REMOTE)
	$(REMOTE)/bin/python -m pip install --quiet --constraint constraints.txt torch
	$(REMOTE)/bin/python -m pip install --quiet --editable ".[remote]"
	$(REMOTE)/bin/python -m pip install --quiet "moto[s3]" flask flask-cors gcp-storage-emulator pytest pytest-timeout  # pip finds no solution for all at once
	touch $@

test-remote: $(REMOTE)/.installed
	OMP_NUM_THREADS=1 $(REMOTE)/bin/python -m pytest tests/remote -rs

stubs: setup
	$(BIN)/python -m tools.stubs
	$(BIN)/python -m tools.options

golden-record: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.golden.runs record

golden-check: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.golden.runs check

bench: setup
	$(BIN)/python -m benchmarks.cpu
	$(BIN)/python -m benchmarks.data

clean:
	rm -rf $(VENV) $(BACKENDS) $(CLUSTERS) $(REMOTE) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
