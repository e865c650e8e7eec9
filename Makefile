# Every target builds its prerequisites; `make demo` and `make test` work on a fresh clone with Python 3.11 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# Compile small programs with fewer passes, in half the time. All other targets compile as users do.
SHORT := --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1

.PHONY: demo test test-slow test-contracts examples docs docs-fast docs-version messages faults lint bench package clean help

help:
	@echo "make demo       solve and explain a small federated problem in under a minute"
	@echo "make test       run the test suite"
	@echo "make test-slow  run the slow tests"
	@echo "make test-contracts  run the contract checks and closed forms that are too slow for make test"
	@echo "make examples   execute the worked examples, the notebooks and the README"
	@echo "make docs       build the documentation in site/ and execute every code block (15 minutes; later only what changed)"
	@echo "make docs-fast  build the same pages in site-fast/ without executing anything (a minute or two)"
	@echo "make docs-version  keep what make docs built as site-versions/<version>/, with a list of all versions"
	@echo "make faults     test kills, full disks, damaged files, hostile answers and long runs, with a table of what was survived (two to three hours)"
	@echo "make messages   generate the index of warnings and refusals, docs/messages.md"
	@echo "make lint       run ruff and mypy"
	@echo "make bench      run the benchmarks, as ratios within one run"
	@echo "make package    build sdist and wheel and test them in a clean environment; DIST=folder keeps them"

$(VENV)/.made:
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.core: pyproject.toml constraints.txt | $(VENV)/.made
	@echo "installing performative into $(VENV) (once) ..."
	$(PIP) -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	@echo "installing the development tools into $(VENV) (once) ..."
	$(PIP) -e ".[dev]"
	@touch $@

demo: $(VENV)/.core
	$(BIN)/performative demo

test: $(VENV)/.dev
	XLA_FLAGS="$(SHORT) $$XLA_FLAGS" $(BIN)/python -m pytest -m "not slow" -n 2 --dist loadfile

test-slow: $(VENV)/.dev
	$(BIN)/python -m pytest -m slow

test-contracts: $(VENV)/.dev
	$(BIN)/python -m pytest -m slow -n 2 tests/contract tests/closed_form

examples: $(VENV)/.dev
	$(BIN)/python -m pytest tests/test_examples.py tests/test_example_notebooks.py tests/test_readme.py -n 2

docs: $(VENV)/.dev
	@echo "building site/: every code block and notebook is executed, and quick runs draw the gallery."
	@echo "The first time this takes about 15 minutes on two cores; results are kept in .cache/ until the package changes."
	$(BIN)/sphinx-build -E -W --keep-going -j 2 -d .cache/doctrees docs site
	$(BIN)/python docs/_ext/site_check.py site
	@echo "open site/index.html, or serve it: python3 -m http.server -d site"

docs-fast: $(VENV)/.dev
	@echo "building site-fast/: all pages, nothing is executed, so that blocks have no results (a minute or two)."
	$(BIN)/sphinx-build -E -W --keep-going -j 2 -d .cache/doctrees-fast -D nb_execution_mode=off docs site-fast
	$(BIN)/python docs/_ext/site_check.py site-fast
	@echo "open site-fast/index.html"

docs-version:
	$(BIN)/python docs/_ext/keep_version.py site site-versions

messages: $(VENV)/.core
	$(BIN)/python -c "import performative._base.messages as m; print(m.page(), end='')" > docs/messages.md

faults: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 -m "slow or not slow" tests/faults tests/fuzz tests/live/test_faults.py tests/live/test_refusals.py \
	  tests/live/test_flower.py tests/live/test_disclosure.py tests/engine/test_checkpoint_attacks.py

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.core
	$(BIN)/performative bench

package:
	PYTHON=$(PYTHON) .ci/package

clean:
	rm -rf $(VENV) build dist *.egg-info src/*.egg-info
