# Each target makes the environment it needs, once, in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo audit faults test test-long lint bench profile clean

help: ## Show this help
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-10s %s\n", $$1, $$2}'

demo: $(VENV)/.experiments ## Train on real images, then all ten quantities in one sweep (ARGS="--seed 1 …")
	$(BIN)/python -m gbackprop demo $(ARGS)

audit: $(VENV)/.experiments ## Hold everything that ships against its oracles (ARGS="my_module:MyLayer --input 3,8,8")
	$(BIN)/python -m gbackprop audit $(ARGS)

test: $(VENV)/.test $(VENV)/.experiments ## Run the tests
	$(BIN)/python -m pytest $(ARGS)

test-long: $(VENV)/.test $(VENV)/.experiments ## Run the tests with many more drawn examples
	HYPOTHESIS_PROFILE=long $(BIN)/python -m pytest $(ARGS)

faults: $(VENV)/.test $(VENV)/.experiments ## Print the table of planted faults (docs/faults.md)
	@PYTHONPATH=tests $(BIN)/python tests/fault_table.py

lint: $(VENV)/.lint $(VENV)/.test $(VENV)/.experiments ## Check style and types
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(VENV)/.torch ## Compare with BackPACK on torch (ARGS="table --turns 7"); installs torch into an environment of its own
	$(VENV)-bench/bin/python benchmarks/compare.py $(ARGS)

profile: $(VENV)/.bench ## Where the time of a call goes, line by line of the sweep (ARGS="3c3d 64 DiagGGN")
	$(BIN)/python benchmarks/where_time_goes.py $(ARGS)

clean: ## Remove the environment and caches
	rm -rf $(VENV) $(VENV)-bench build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# One stamp for each extra: installed when setup.cfg is newer.
$(VENV)/.%: setup.cfg pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[$*]"
	@touch $@

# BackPACK asks for torchvision, which it does not need here.
$(VENV)/.torch: setup.cfg pyproject.toml | $(BIN)/python
	$(PYTHON) -m venv $(VENV)-bench
	$(VENV)-bench/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(VENV)-bench/bin/python -m pip install --quiet --disable-pip-version-check --no-deps backpack-for-pytorch unfoldNd einops packaging
	$(VENV)-bench/bin/python -m pip install --quiet --disable-pip-version-check -e ".[bench]"
	@touch $@
