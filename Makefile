# Every target makes its own environment: `make test` is all a fresh clone needs.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
CONSTRAINTS ?= constraints.txt

.PHONY: help install demo test slow cluster coverage check format benchmark figures notebook docs clean
.DEFAULT_GOAL := help

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint $(CONSTRAINTS) --editable '.[dev]'
	@touch $@

install: $(READY)  ## make .venv with the package, its tests and its tools

demo: $(READY)  ## train, test and look: a few minutes, then open runs/demo/report.html
	$(BIN)/motionformer demo runs/demo

test: $(READY)  ## run every test (minutes, 2 cores)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist loadfile  # a core for each process

slow: $(READY)  ## run the tests that take a minute or more each
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile -m slow

cluster: $(READY)  ## run the tests on a SLURM of two nodes, which is installed and started here (Linux, root; minutes)
	$(BIN)/python -m pytest -m cluster -rs tests/cluster

coverage: $(READY)  ## run every test and measure which lines ran; an error below 90 %
	mkdir -p build/coverage
	OMP_NUM_THREADS=1 COVERAGE_FILE=$(CURDIR)/build/coverage/data $(BIN)/python -m pytest --numprocesses auto --dist loadfile \
		--cov --cov-report=term:skip-covered --cov-report=json:build/coverage/coverage.json --cov-fail-under=90

check: $(READY)  ## lint, format, types, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)  ## rewrite the code in the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

benchmark: $(READY)  ## measure speed and memory, write build/*.md and *.json (an hour)
	$(BIN)/pip install --quiet --constraint $(CONSTRAINTS) --editable '.[benchmark]'
	$(BIN)/python -m benchmarks.run
	$(BIN)/python -m benchmarks.decoding
	$(BIN)/python -m benchmarks.clip_transforms
	$(BIN)/python -m benchmarks.motion_learning --level easy --threads 2
	$(BIN)/python -m benchmarks.training_overhead
	$(BIN)/python -m benchmarks.prediction
	$(BIN)/python -m benchmarks.approximations
	$(BIN)/motionformer reproduce t3m --output build/t3m

figures: $(READY)  ## redraw the pictures of README and docs
	$(BIN)/python docs/figures/draw.py

notebook: $(READY)  ## write examples/tutorial.ipynb from docs/tutorial.md
	$(BIN)/python docs/notebook.py

# no --quiet: warnings that are not logged do not stop a strict build
docs: $(READY)  ## build the documentation site in build/site; a dead link or a page left out is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Read it: $(BIN)/python -m http.server --directory build/site 8000"

clean:  ## remove the environment and everything built
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
