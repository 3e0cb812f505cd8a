# make run     the main job: fetch the default model once, compile it for this machine, talk   (PROMPT="...")
# make test    style, types and every test, the slow ones too
# make bench   Pavane beside llama.cpp, numpy, onnxruntime (and torch where it is installed)    (BENCH="--quick")
# make evidence  the checker against the oracle on thousands of programs; writes docs/evidence.md (EVIDENCE="--size 0.1")
# make check   the quick round while working (about two minutes)
# make venv    only the virtual environment; made anew when pyproject.toml or constraints.txt change

SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
PROMPT ?= Explain in two sentences what a compiler does.
export PROMPT

FIND_PYTHON := for python in python3 python3.11 python3.12 python3.13 python3.14; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done
PYTHON ?= $(shell $(FIND_PYTHON))
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e
QUICK_TESTS := $(wildcard tests/walls tests/unit tests/golden tests/properties tests/reject tests/checker)
PYTEST := $(BIN)/python -m pytest -q -n auto --maxprocesses 4 --dist worksteal

.PHONY: run bench evidence test check venv dev format lint types quick-tests all-tests clean

run: $(VENV)/.installed
	@$(BIN)/pavane run --prompt "$$PROMPT"

bench: $(VENV)/.installed
	@echo "adding the other engines (llama.cpp is built for this machine: some minutes, once)"
	@CMAKE_ARGS=-DGGML_NATIVE=on $(INSTALL) '.[bench]'
	@$(BIN)/python bench/speed.py $(BENCH)

evidence: dev
	@$(BIN)/python -m tests.evidence $(EVIDENCE)

test: format lint types all-tests

check: format lint types quick-tests

venv: $(VENV)/.installed

dev: $(VENV)/.installed-dev

# An environment whose interpreter is gone (moved, upgraded) is made again.
ifneq ($(shell $(BIN)/python -c 'print(1)' 2>/dev/null),1)
.PHONY: $(VENV)/.installed
endif

$(VENV)/.installed: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "pavane needs Python 3.11 or newer: install it, or say make PYTHON=/path/to/python"; exit 1; }
	@echo "making $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv --clear $(VENV) || { echo "python's venv module is incomplete (Debian: apt install python3-venv)"; exit 1; }
	@$(INSTALL) .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "adding the tools for tests"
	@$(INSTALL) '.[dev]'
	@touch $@

# $(call step,NAME,COMMAND): run it, say how long it took, and how to run it again when it fails.
define step
@began=$$SECONDS; if $(2); then echo "== $(1): $$((SECONDS - began)) s"; \
	else echo "== $(1) failed after $$((SECONDS - began)) s; again with: $(2)"; exit 1; fi
endef

format: dev
	$(call step,format,$(BIN)/ruff format --check .)

lint: dev
	$(call step,lint,$(BIN)/ruff check .)

types: dev
	$(call step,types,$(BIN)/mypy)

quick-tests: dev
	$(call step,quick tests,$(PYTEST) $(QUICK_TESTS))

all-tests: dev
	$(call step,all tests,$(PYTEST) -m "" tests)

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis
