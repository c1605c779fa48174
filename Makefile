PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
PYTEST := $(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist worksteal
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: attention claims claims-quick exercise explain help lesson setup train compare compare-quick test test-all board lint format benchmark clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo '  ARGS="task=copy seed=1" passes arguments on; PYTHON=python3.12 chooses the interpreter'

setup: .venv/installed ## set up alone: .venv with all that the scripts need

train: .venv/installed ## set up, then train (ARGS="task=copy" changes what)
	@$(BIN)/python scripts/train.py $(ARGS)

compare: .venv/installed ## set up, then train the RNNs and the Transformer on equal terms (a quarter of an hour)
	@$(BIN)/python scripts/compare.py $(ARGS)

compare-quick: .venv/installed ## the same in small, in a minute or two
	@$(BIN)/python scripts/compare.py experiment=compare_quick $(ARGS)

claims: .venv/installed ## try the lessons' claims, each with an experiment; half an hour (ARGS="claims=[heads]")
	@$(BIN)/python scripts/claims.py $(ARGS)

claims-quick: .venv/installed ## the same in small, in minutes
	@$(BIN)/python scripts/claims.py quick=true $(ARGS)

test: .venv/installed-dev ## set up, then run the fast tests
	@$(PYTEST) $(ARGS)

test-all: .venv/installed-engines ## run all tests, minutes of training, the browser and Ray included
	@$(PYTEST) -m '' $(ARGS)

lesson: .venv/installed ## walk through the lesson step by step (ARGS="--language zh")
	@$(BIN)/python scripts/lesson.py $(ARGS)

board: .venv/installed ## open TensorBoard on all runs
	@$(BIN)/tensorboard --logdir runs --samples_per_plugin images=500 $(ARGS)

attention: .venv/installed ## see where a run looks: ARGS="RUN --source hello"
	@$(BIN)/python scripts/attention.py $(ARGS)

explain: .venv/installed ## a prompt that explains attention by what a run does: ARGS="RUN --source abc"
	@$(BIN)/python scripts/explain.py $(ARGS)

exercise: .venv/installed-dev ## test your file of an exercise: N=1, 2 or 3 (SOLUTION=1: the solution in its place)
	@$(if $(filter-out 1 2 3,$(N))$(filter-out 1,$(words $(N))),$(error N must be 1, 2 or 3, as in: make exercise N=1))
	@$(if $(filter-out 0 1,$(SOLUTION))$(word 2,$(SOLUTION)),$(error SOLUTION must be 0 or 1, but is $(SOLUTION)))
	@EXERCISES=$(if $(filter 1,$(SOLUTION)),solutions) $(BIN)/python -m pytest -x --tb=short --no-header exercises/test_exercise_$(strip $(N)).py $(ARGS)

lint: .venv/installed-dev ## check format, style and types
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

format: .venv/installed-dev ## format the code
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

benchmark: .venv/installed-dev ## race ours against nn.Transformer and x-transformers, ten minutes (ARGS="--sections decoding")
	@$(BIN)/python scripts/benchmark.py $(ARGS)

clean: ## remove the environment and caches; runs stay
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache

.venv/bin/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v < (3, 14) else f"lookback needs Python 3.11 to 3.13, but $(PYTHON) is {v[0]}.{v[1]}: make PYTHON=python3.12 ...")'
	@echo 'setting up .venv (a few minutes the first time)'
	@$(PYTHON) -m venv .venv || { rm -rf .venv; exit 1; }

.venv/installed: .venv/bin/python pyproject.toml constraints.txt
	@$(INSTALL) --editable .
	@touch $@

.venv/installed-dev: .venv/installed
	@$(INSTALL) --editable '.[dev,bench]'
	@touch $@

.venv/installed-engines: .venv/installed-dev
	@$(INSTALL) --editable '.[ray,slurm]'
	@touch $@
