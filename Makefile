PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-all lint docs clean
.DEFAULT_GOAL := demo

# pip, not uv: constraints.txt pins a CPU build of torch that pip can find
.venv/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --no-compile -c constraints.txt -e '.[dev,docs]'
	touch $@

demo: .venv/.installed
	$(BIN)/depthbench demo

test: .venv/.installed
	$(BIN)/pytest -n 2 --dist worksteal -m 'not slow'

test-all: .venv/.installed
	$(BIN)/pytest -n 2 --dist worksteal

lint: .venv/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright

docs: .venv/.installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

clean:
	rm -rf .venv build dist .pytest_cache .ruff_cache src/*.egg-info
