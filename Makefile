# Every target makes what it needs first; `make demo` and `make test` work on a fresh clone with Python 3.11 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# Small programs by a shorter way through the compiler, in half the time. All other targets compile as users do.
SHORT := --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1

.PHONY: demo test test-slow test-contracts examples docs messages faults lint bench package clean help

help:
	@echo "make demo       a small federated problem, solved and explained in under a minute"
	@echo "make test       the test suite"
	@echo "make test-slow  the long checks"
	@echo "make test-contracts  the contract checks and closed forms that are too long for make test"
	@echo "make examples   the worked examples and the README, executed"
	@echo "make docs       the documentation site in site/, every code block executed"
	@echo "make faults     kills, full disks, damaged files, hostile answers, long runs: a table of what was survived (two to three hours)"
	@echo "make messages   the index of warnings and refusals, docs/messages.md, from the code"
	@echo "make lint       ruff and mypy"
	@echo "make bench      the benchmarks, as ratios in one run"
	@echo "make package    sdist and wheel, installed into a clean environment and used there; DIST=folder keeps them"

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
	$(BIN)/python -m pytest tests/test_examples.py tests/test_readme.py -n 2

docs: $(VENV)/.dev
	$(BIN)/sphinx-build -E -W --keep-going -j 2 -d .cache/doctrees docs site
	@echo "open site/index.html"

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
