# `make demo`, `make test` and `make bench` set everything up by themselves: a virtual environment, the package, then the run.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: demo test test-all fuzz property lint types layers unit docs site lock bench clean

demo: $(STAMP)
	$(BIN)/graphopt demo

test: lint types layers unit

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

layers: $(STAMP)
	$(BIN)/lint-imports

unit: $(STAMP)
	$(BIN)/pytest -q -n 2 -m "not slow"

# Everything, the whole zoo at every level included: about half an hour on two cores.
test-all: lint types layers
	$(BIN)/pytest -q -n 2

# Random models from a seed that changes with the commit, for an hour; `.fuzz` keeps what it finds, and where it was.
fuzz: $(STAMP)
	$(BIN)/graphopt fuzz --minutes 60 --jobs 2 --seed $$(git rev-parse --short HEAD) --corpus .fuzz/$$(git rev-parse --short HEAD)

# The other generators, with many more seeds than `make test` takes; about an hour.
property: $(STAMP)
	$(BIN)/pytest -q -n 2 tests/property tests/hostile tests/models/test_twice.py \
		tests/passes/test_layout_lanes.py tests/passes/test_layout_property.py

# The pages that are written from the code: one for each pass, and the table of the other optimizers' passes.
docs: $(STAMP)
	$(BIN)/graphopt passes --write docs/passes
	$(BIN)/graphopt passes --index graphopt_passes
	$(BIN)/python -c 'from benchmarks import firing; firing.write()'
	$(BIN)/graphopt passes --peers --markdown > docs/peers.md.new && mv docs/peers.md.new docs/peers.md

# The documentation as a site, in site/; it builds without a network once this has set it up.
site: $(STAMP)
	test -x $(BIN)/mkdocs || $(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[docs]"
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# The versions of the development environment, as constraints: `make test CONSTRAINTS=requirements/dev.lock` installs them.
lock: $(STAMP)
	$(BIN)/python requirements/lock.py requirements/dev.lock

# All figures and pages, two hours at most: where it was cut short it goes on. `ONLY="--only families"` runs one part.
bench: $(STAMP)
	$(BIN)/python -m benchmarks bench $(ONLY)

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(addprefix -c ,$(CONSTRAINTS)) -e ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache
