# Every target sets itself up: `make test` or `make reproduce` may be the first command typed in a fresh clone.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: test fuzz lint reproduce paper bench docs release clean

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; assert (3, 11) <= sys.version_info < (3, 14), "ksubset needs Python 3.11 to 3.13"'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[fast,experiments,selection,stats,test]'
	touch $@

test: $(INSTALLED)  ## the whole test suite, a process with one thread for each core
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist worksteal

fuzz: $(INSTALLED)  ## 10,000 random batches against 60-digit arithmetic: minutes
	$(BIN)/python -m pytest tests/numerics/test_digits.py --hypothesis-profile=fuzz

lint: $(INSTALLED)  ## format, style, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

reproduce: $(INSTALLED)  ## the paper's experiments on digits: tables, and the paths of the figures
	$(BIN)/ksubset reproduce

# EPOCHS=50, SEEDS="0 1" or DATASETS=mnist make less of it; JOBS runs at a time, one core each.
EPOCHS ?= 500
SEEDS ?= 0 1 2 3 4
DATASETS ?= mnist fashion-mnist kmnist
JOBS ?= 2
RUNS ?= runs/paper
SWEEP = $(BIN)/ksubset sweep --epochs $(EPOCHS) --jobs $(JOBS) --out $(RUNS) \
	$(foreach dataset,$(DATASETS),--dataset $(dataset)) $(foreach seed,$(SEEDS),--seed $(seed))

paper: $(INSTALLED)  ## the paper's evaluation: goes on where it was ended, and leaves out what is finished
	$(SWEEP) --method sfess-v --method gs --method stgs --method sfess
	$(SWEEP) --method sfess-v --method gs --method stgs --method sfess --protocol best
	$(SWEEP) --method simple --method imle --method ncpss --method hybrid --protocol best
	$(SWEEP) --method simple --method imle --method ncpss --method hybrid
	$(SWEEP) --method sfess-v --method gs --method stgs --method sfess --task reconstruction
	$(SWEEP) --method sfess-v --method gs --method stgs --method sfess --task reconstruction --protocol best
	$(SWEEP) --method simple --method imle --method ncpss --method hybrid --task reconstruction --protocol best
	$(BIN)/ksubset table $(RUNS)
	$(BIN)/ksubset plot $(RUNS) --out $(RUNS)/figures

bench: $(INSTALLED)  ## ours against its peers, side by side
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[bench]'
	$(BIN)/python benchmarks/normalizer.py
	$(BIN)/python benchmarks/sampler.py
	$(BIN)/python benchmarks/shapes.py
	$(BIN)/python benchmarks/training.py

# TUTORIAL=off does not run it, and its pages have no outputs.
TUTORIAL ?= force

docs: $(INSTALLED)  ## the documentation as web pages, in site/: runs the tutorial, two minutes
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[docs]'
	$(BIN)/sphinx-build --quiet --fail-on-warning -D nb_execution_mode=$(TUTORIAL) -b html docs site

# EXTRAS=--extras installs each extra in an environment of its own, too: minutes.
EXTRAS ?=

release: $(INSTALLED)  ## wheel and sdist in dist/, each tried in an empty environment: a minute
	rm -rf dist
	$(BIN)/python -m build --outdir dist . > /dev/null
	$(BIN)/python tests/release/check_archives.py dist $(EXTRAS)

clean:
	rm -rf $(VENV) site jupyter_execute dist
