# Each target makes the environment it needs, once, in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH := $(VENV)-torch
REFEREE := $(VENV)-referee
ARGS ?=
DATA ?= data
CUDA ?= cuda13x
# Tests run in as many processes as there are processors, so products of matrices have one thread in each.
PARALLEL := OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1

# Compiled modules are stored: tests start many processes, and each would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo audit experiments faults museum mutants referee test test-long test-touched test-torch gpu-test cupy-names lint bench bench-gpu profile clean

help: ## Show this help
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-12s %s\n", $$1, $$2}'

demo: $(VENV)/.experiments ## Train on real images, then the paper's ten quantities in one sweep (ARGS="--seed 1 …")
	$(BIN)/python -m gbackprop demo $(ARGS)

audit: $(VENV)/.experiments ## Compare everything that ships with its oracles (ARGS="my_module:MyLayer --input 3,8,8")
	$(BIN)/python -m gbackprop audit $(ARGS)

experiments: $(VENV)/.experiments ## The paper's logistic regression, then its picture and table (DATA=DIR ARGS="--workers 2 …")
	$(BIN)/python -m gbackprop study examples/mnist_logreg.toml --data-dir $(DATA) $(ARGS)
	$(BIN)/python -m gbackprop plot mnist_logreg.sqlite

test: $(VENV)/.test $(VENV)/.experiments ## Run the tests
	$(PARALLEL) $(BIN)/python -m pytest -n auto --dist loadfile $(ARGS)

test-long: $(VENV)/.test $(VENV)/.experiments ## Run the tests that take long, too, with many more drawn examples
	HYPOTHESIS_PROFILE=long $(PARALLEL) $(BIN)/python -m pytest -n auto --dist loadfile $(ARGS)

test-touched: $(VENV)/.test $(VENV)/.experiments ## Run what test-long adds for the folders that a branch changed (ARGS="--minutes 5")
	$(BIN)/python tests/touched.py $(ARGS)

test-torch: $(TORCH)/.test ## Run the tests that need torch, in an environment of its own
	$(PARALLEL) $(TORCH)/bin/python -m pytest -n auto --dist loadfile tests/interop tests/trace $(ARGS)

museum: $(VENV)/.test $(VENV)/.experiments ## Print the page of faults that shipped elsewhere (docs/museum.md)
	@PYTHONPATH=. $(BIN)/python tests/museum/museum.py

referee: $(REFEREE)/.installed ## Judge other libraries, write docs/referee.md; needs a network once, then minutes (ARGS="opacus jax")
	$(REFEREE)/bin/python benchmarks/referee/run.py $(ARGS)

mutants: $(TORCH)/.mutants ## Draw small changes of the package and run the tests that reach each (ARGS="--count 100 --seed 1"; an hour for 500)
	$(PARALLEL) $(TORCH)/bin/python tests/mutants/mutants.py $(ARGS)

faults: $(VENV)/.test $(VENV)/.experiments ## Print the table of planted faults (docs/faults.md)
	@PYTHONPATH=tests/helpers $(BIN)/python tests/kit/fault_table.py

# A Python that has all that is needed is taken as it is: a machine with a GPU may not be able to install anything.
gpu-test: ## Run the tests with golden cases, kit, quantities and kernels on a GPU (CUDA=cuda12x for an older driver)
	@if $(PYTHON) -c "import cupy, hypothesis, pytest, scipy" 2>/dev/null; then \
		$(PARALLEL) $(PYTHON) -m pytest --device cuda -p no:benchmark $(ARGS); \
	else \
		$(MAKE) --no-print-directory $(VENV)/.test $(VENV)/.experiments $(VENV)/.$(CUDA) \
		&& $(PARALLEL) $(BIN)/python -m pytest --device cuda -p no:benchmark $(ARGS); \
	fi

cupy-names: $(VENV)/.$(CUDA) ## Write down CuPy's names and keywords, which the tests without a GPU go by; needs no GPU
	$(BIN)/python tests/device/cupy_names.py

lint: $(VENV)/.lint $(VENV)/.test $(VENV)/.experiments ## Check style, types and the order of imports
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tests/structure.py

bench: $(TORCH)/.bench ## Compare with BackPACK on torch (ARGS="table --turns 7"), in the environment of test-torch
	$(TORCH)/bin/python benchmarks/compare.py $(ARGS)

bench-gpu: ## Compare with BackPACK on torch CUDA, on one GPU (ARGS="--turns 15 --tf32")
	@if $(PYTHON) -c "import cupy, torch, backpack" 2>/dev/null; then \
		PYTHONPATH=. $(PYTHON) benchmarks/compare.py --device cuda $(ARGS); \
	else \
		$(MAKE) --no-print-directory TORCH=$(VENV)-cuda $(VENV)-cuda/.bench \
		&& $(VENV)-cuda/bin/python -m pip install --quiet --disable-pip-version-check -e ".[$(CUDA)]" \
		&& $(VENV)-cuda/bin/python benchmarks/compare.py --device cuda $(ARGS); \
	fi

profile: $(VENV)/.bench ## Where the time of a call goes, line by line of the sweep (ARGS="3c3d 64 DiagGGN")
	$(BIN)/python benchmarks/where_time_goes.py $(ARGS)

clean: ## Remove the environments and caches
	rm -rf $(VENV) $(VENV)-torch $(VENV)-cuda $(REFEREE) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# One stamp for each extra: installed when setup.cfg is newer.
$(VENV)/.%: setup.cfg pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[$*]"
	@touch $@

# torch first, so that nothing else chooses its version; with opt_einsum, it computes products of several otherwise.
$(TORCH)/.test: setup.cfg pyproject.toml
	$(PYTHON) -m venv $(TORCH)
	$(TORCH)/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(TORCH)/bin/python -m pip install --quiet --disable-pip-version-check -e ".[test,onnx]" onnxscript opt_einsum
	@touch $@

$(TORCH)/.mutants: $(TORCH)/.test
	$(TORCH)/bin/python -m pip install --quiet --disable-pip-version-check -e ".[experiments,mutants]"
	@touch $@

# Some ask for torchvision or data sets, which nothing here needs: they come without what they ask for.
$(REFEREE)/.installed: benchmarks/referee/requirements.txt benchmarks/referee/requirements-no-deps.txt setup.cfg
	$(PYTHON) -m venv $(REFEREE)
	$(REFEREE)/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(REFEREE)/bin/python -m pip install --quiet --disable-pip-version-check -r benchmarks/referee/requirements.txt -e .
	$(REFEREE)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r benchmarks/referee/requirements-no-deps.txt
	@touch $@

# BackPACK asks for torchvision, which it does not need here; curvlinops for data sets.
$(TORCH)/.bench: $(TORCH)/.test
	$(TORCH)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps backpack-for-pytorch unfoldNd einops packaging curvlinops-for-pytorch einconv linear_operator
	$(TORCH)/bin/python -m pip install --quiet --disable-pip-version-check -e ".[bench]"
	@touch $@
