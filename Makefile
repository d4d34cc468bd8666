# Each target makes the environment it needs, once, in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo test test-long lint clean

help: ## Show this help
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-10s %s\n", $$1, $$2}'

demo: $(VENV)/.experiments ## Train on real images, then all ten quantities in one sweep (ARGS="--seed 1 …")
	$(BIN)/python -m gbackprop demo $(ARGS)

test: $(VENV)/.test $(VENV)/.experiments ## Run the tests
	$(BIN)/python -m pytest $(ARGS)

test-long: $(VENV)/.test $(VENV)/.experiments ## Run the tests with many more drawn examples
	HYPOTHESIS_PROFILE=long $(BIN)/python -m pytest $(ARGS)

lint: $(VENV)/.lint $(VENV)/.test $(VENV)/.experiments ## Check style and types
	$(BIN)/ruff check .
	$(BIN)/mypy

clean: ## Remove the environment and caches
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# One stamp for each extra: installed when setup.cfg is newer.
$(VENV)/.%: setup.cfg pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[$*]"
	@touch $@
