# `make run` and `make test` work in a fresh clone with Python 3.11 or newer: they make .venv and install into it.

VENV := .venv
BIN := $(VENV)/bin
SHARED ?= ../shared
# One test process per core; PYTEST_FLAGS= runs them in one.
PYTEST_FLAGS ?= -n auto --dist worksteal
# Each test is in one of these parts, see tests/parts.py: make test-hub
PARTS := engine hub app faults fuzz project
# Lines and branches of these are covered wholly, and by the tests of their own that are named below them.
COVERED := engine/cache.py,engine/decode/acceptance.py,engine/hub/journal.py,engine/text/channels.py,app/store/migrations.py
COVERING := tests/test_cache.py tests/test_acceptance.py tests/hub/test_hub_journal.py tests/test_text_channels.py \
	tests/app/test_store_migrations.py
LOCK_FLAGS ?= --upgrade
FUZZ_SECONDS ?= 30
# make run CUDA=1 computes on an NVIDIA GPU.
CUDA ?=
RUN_LOCK := $(if $(CUDA),requirements-cuda.lock,requirements.lock)
RUN_STAMP := $(VENV)/$(if $(CUDA),cuda,cpu).stamp
DEV_STAMP := $(VENV)/dev.stamp
FUZZ_STAMP := $(VENV)/fuzz.stamp
TOOLS := build/tools-venv
TOOLS_STAMP := $(TOOLS)/tools.stamp
UV_COMPILE := $(TOOLS)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-annotate --custom-compile-command "make lock"
WITH_BUILD := --group pyproject.toml:build
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
.PHONY: help run test $(PARTS:%=test-%) check coverage coverage-floor fuzz audit bench bench-window screenshots person faults \
	reference bundle lock lock-check clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "%-16s%s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(RUN_STAMP)  ## chat with the bundled model
	@$(BIN)/inkstand

test: $(DEV_STAMP)  ## run the tests; make test-engine, -hub, -app, -faults, -fuzz or -project: a part of them
	@$(BIN)/python -m pytest $(PYTEST_FLAGS)

$(PARTS:%=test-%): test-%: $(DEV_STAMP)
	@$(BIN)/python -m pytest $(PYTEST_FLAGS) -m $*

check: $(DEV_STAMP)  ## formatting, lint, types, import contracts
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

coverage: $(DEV_STAMP)  ## run the tests and report uncovered lines and branches
	@$(BIN)/python -m pytest --cov --cov-report=term-missing $(PYTEST_FLAGS)

coverage-floor: $(DEV_STAMP)  ## fail where a line or branch of what must be covered wholly is not
	@COVERAGE_FILE=.coverage.floor $(BIN)/python -m pytest -q --cov --cov-report= $(PYTEST_FLAGS) $(COVERING)
	@COVERAGE_FILE=.coverage.floor $(BIN)/coverage report --show-missing --fail-under=100 --include=$(COVERED)

fuzz: $(FUZZ_STAMP)  ## coverage-guided fuzzing, Linux only: make fuzz FUZZ_SECONDS=300 TARGETS="header journal"
	@$(BIN)/python tests/fuzz --seconds $(FUZZ_SECONDS) $(TARGETS)

audit: $(TOOLS_STAMP)  ## known vulnerabilities of everything locked, and lints of the workflows
	@$(TOOLS)/bin/zizmor --offline --quiet .github
	@$(TOOLS)/bin/python packaging/audit.py requirements*.lock

bench: $(RUN_STAMP)  ## decoding speed in a minute: make bench BENCH_FLAGS="--peer PYTHON"
	@$(BIN)/inkstand bench --quick $(BENCH_FLAGS)

bench-window: $(RUN_STAMP)  ## the window against its targets: make bench-window BENCH_FLAGS="--quick"
	@$(BIN)/python -m app.bench $(BENCH_FLAGS)

screenshots: $(RUN_STAMP)  ## render the window's states into build/screenshots
	@QT_QPA_PLATFORM=offscreen $(BIN)/python -m app.screenshots build/screenshots

person: $(RUN_STAMP)  ## a person's first minutes on a virtual screen, pictures into build/person
	@$(BIN)/python tests/person build/person

faults: $(DEV_STAMP)  ## kill the program 200 times and look what is lost: make faults FAULTS_FLAGS="--seed 1"
	@$(BIN)/python tests/faults 200 $(FAULTS_FLAGS)

reference: $(DEV_STAMP)  ## check the original demo checkpoint: make reference SHARED=DIR
	@$(BIN)/python packaging/check_reference.py "$(SHARED)"

bundle: $(BUNDLE_STAMP)  ## the installable program in dist/, tested: a tarball on Linux, Inkstand.app on macOS
	@packaging/bundle.sh $(BUNDLE_VENV)/bin/python

# Writes the lock files to the folder that is given, those of uv in agreement with the ones that lie there.
define LOCK
	$(UV_COMPILE) $(LOCK_FLAGS) $(WITH_BUILD) pyproject.toml -o $(1)/requirements.lock
	$(UV_COMPILE) $(LOCK_FLAGS) $(WITH_BUILD) pyproject.toml --extra cuda --no-emit-package mlx-cpu \
		-c $(1)/requirements.lock -o $(1)/requirements-cuda.lock
	$(UV_COMPILE) $(LOCK_FLAGS) $(WITH_BUILD) pyproject.toml --extra dev -c $(1)/requirements.lock \
		-o $(1)/requirements-dev.lock
	$(UV_COMPILE) $(LOCK_FLAGS) $(WITH_BUILD) pyproject.toml --group pyproject.toml:bundle -c $(1)/requirements.lock \
		-o $(1)/requirements-bundle.lock
	$(UV_COMPILE) $(LOCK_FLAGS) $(WITH_BUILD) --group pyproject.toml:tools -o $(1)/requirements-tools.lock
	$(UV_COMPILE) $(LOCK_FLAGS) --group pyproject.toml:fuzz -c $(1)/requirements-dev.lock -o $(1)/requirements-fuzz.lock
endef

lock: $(TOOLS_STAMP)  ## renew the lock files from pyproject.toml
	@mkdir -p build/lock && cp requirements*.lock build/lock/
	$(call LOCK,build/lock)
	cp build/lock/requirements*.lock .
	$(TOOLS)/bin/python packaging/macos/lock_mlx.py $(MACOS) > packaging/macos/mlx.lock

lock-check: LOCK_FLAGS :=
lock-check: $(TOOLS_STAMP)  ## fail where the lock files are not those of pyproject.toml
	@rm -rf build/lock && mkdir -p build/lock && cp requirements*.lock build/lock/
	$(call LOCK,build/lock)
	@for file in requirements*.lock; do diff -u $$file build/lock/$$file || exit 1; done
	@echo "The lock files are those of pyproject.toml."

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

$(TOOLS_STAMP): requirements-tools.lock packaging/venv.sh
	@packaging/venv.sh $(TOOLS) requirements-tools.lock
	@touch $@

$(FUZZ_STAMP): requirements-fuzz.lock $(DEV_STAMP)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --require-hashes -r requirements-fuzz.lock
	@touch $@

$(BUNDLE_STAMP): requirements-bundle.lock packaging/macos/mlx.lock packaging/venv.sh packaging/macos/oldest_mlx.sh
	@packaging/venv.sh $(BUNDLE_VENV) requirements-bundle.lock
	@[ "$$(uname -s)" != Darwin ] || packaging/macos/oldest_mlx.sh $(BUNDLE_VENV)/bin/python
	@touch $@
