# `make run` and `make test` work in a fresh clone with Python 3.11 or newer: they make .venv and install into it.

VENV := .venv
BIN := $(VENV)/bin
SHARED ?= ../shared
# One test process per core; PYTEST_FLAGS= runs them in one.
PYTEST_FLAGS ?= -n auto --dist worksteal
LOCK_FLAGS ?= --upgrade
# make run CUDA=1 computes on an NVIDIA GPU.
CUDA ?=
RUN_LOCK := $(if $(CUDA),requirements-cuda.lock,requirements.lock)
RUN_STAMP := $(VENV)/$(if $(CUDA),cuda,cpu).stamp
DEV_STAMP := $(VENV)/dev.stamp
UV_COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-annotate --custom-compile-command "make lock" --group pyproject.toml:build $(LOCK_FLAGS)
BUNDLE_VENV := build/bundle-venv
BUNDLE_STAMP := $(BUNDLE_VENV)/bundle.stamp
# The oldest macOS that Inkstand.app is for; `make lock` takes the MLX wheels of it.
MACOS := 14.0

export PYTHON

# An environment whose interpreter was upgraded away is made anew.
ifeq ($(wildcard $(BIN)/python),)
$(shell rm -f $(VENV)/*.stamp)
endif

.DEFAULT_GOAL := help
.PHONY: help run test check coverage bench bench-window screenshots person reference bundle lock clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "%-14s%s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(RUN_STAMP)  ## chat with the bundled model
	@$(BIN)/inkstand

test: $(DEV_STAMP)  ## run the tests
	@$(BIN)/python -m pytest $(PYTEST_FLAGS)

check: $(DEV_STAMP)  ## formatting, lint, types, import contracts
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

coverage: $(DEV_STAMP)  ## run the tests and report uncovered lines
	@$(BIN)/python -m pytest --cov --cov-report=term-missing $(PYTEST_FLAGS)

bench: $(RUN_STAMP)  ## decoding speed in a minute: make bench BENCH_FLAGS="--peer PYTHON"
	@$(BIN)/inkstand bench --quick $(BENCH_FLAGS)

bench-window: $(RUN_STAMP)  ## the window against its targets: make bench-window BENCH_FLAGS="--quick"
	@$(BIN)/python -m app.bench $(BENCH_FLAGS)

screenshots: $(RUN_STAMP)  ## render the window's states into build/screenshots
	@QT_QPA_PLATFORM=offscreen $(BIN)/python -m app.screenshots build/screenshots

person: $(RUN_STAMP)  ## a person's first minutes on a virtual screen, pictures into build/person
	@$(BIN)/python tests/person build/person

reference: $(DEV_STAMP)  ## check the original demo checkpoint: make reference SHARED=DIR
	@$(BIN)/python packaging/check_reference.py "$(SHARED)"

bundle: $(BUNDLE_STAMP)  ## the installable program in dist/, tested: a tarball on Linux, Inkstand.app on macOS
	@packaging/bundle.sh $(BUNDLE_VENV)/bin/python

lock: $(DEV_STAMP)  ## renew the lock files from pyproject.toml
	@$(BIN)/python -m pip install --quiet uv
	$(UV_COMPILE) pyproject.toml -o requirements.lock
	$(UV_COMPILE) pyproject.toml --extra cuda --no-emit-package mlx-cpu -c requirements.lock -o requirements-cuda.lock
	$(UV_COMPILE) pyproject.toml --extra dev -c requirements.lock -o requirements-dev.lock
	$(UV_COMPILE) pyproject.toml --group pyproject.toml:bundle -c requirements.lock -o requirements-bundle.lock
	$(BIN)/python packaging/macos/lock_mlx.py $(MACOS) > packaging/macos/mlx.lock

clean:  ## remove the environment and everything generated
	rm -rf $(VENV) build dist htmlcov .coverage .hypothesis .import_linter_cache .pytest_cache .ruff_cache
	find app engine packaging tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(RUN_STAMP): $(RUN_LOCK) pyproject.toml packaging/venv.sh
	@packaging/venv.sh $(VENV) $(RUN_LOCK)
	@rm -f $(VENV)/*.stamp
	@touch $@

$(DEV_STAMP): requirements-dev.lock pyproject.toml packaging/venv.sh
	@packaging/venv.sh $(VENV) requirements-dev.lock
	@rm -f $(VENV)/*.stamp
	@touch $@ $(VENV)/cpu.stamp

$(BUNDLE_STAMP): requirements-bundle.lock packaging/macos/mlx.lock packaging/venv.sh packaging/macos/oldest_mlx.sh
	@packaging/venv.sh $(BUNDLE_VENV) requirements-bundle.lock
	@[ "$$(uname -s)" != Darwin ] || packaging/macos/oldest_mlx.sh $(BUNDLE_VENV)/bin/python
	@touch $@
