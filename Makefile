# `make` alone lists the commands. A fresh machine needs python3 (3.11 or newer), pip and make.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --no-input --disable-pip-version-check --quiet

# PYTHON= chooses what an environment is made with; one that is there already is not changed, so it must agree.
ifneq ($(origin PYTHON),file)
  ifneq ($(wildcard $(BIN)/python),)
    MINOR := 'import sys; print("%d.%d" % sys.version_info[:2])'
    ifneq ($(shell $(PYTHON) -c $(MINOR)),$(shell $(BIN)/python -c $(MINOR)))
      $(error $(VENV) is of another Python than $(PYTHON): `make clean` removes it, and VENV=$(VENV)-other makes one beside it)
    endif
  endif
endif

help: ## List the commands.
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name line; do printf 'make %-10s %s\n' "$$name" "$$line"; done

serve: $(VENV)/.installed ## Start the catalog on 127.0.0.1:8181; HOST=, PORT= and DATA= override.
	@exec $(BIN)/nunatak serve $(if $(HOST),--host '$(HOST)') $(if $(PORT),--port '$(PORT)') $(if $(DATA),--data '$(DATA)')

check: $(VENV)/.installed-tests ## Look at the code without running it: ruff, mypy, layers, docs.
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q tests/unit/test_layers.py tests/unit/test_docs.py

PYTEST := $(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile

unit: $(VENV)/.installed-tests ## Run the fast tests of tests/unit; 1 minute.
	@$(PYTEST) -m 'not slow' tests/unit

test-api: $(VENV)/.installed-tests .tools ## Run the tests of the HTTP API and of who may do what; 3 minutes.
	@$(PYTEST) tests/api tests/access

test-db: $(VENV)/.installed-tests .tools ## Run the tests of the three databases; 2 minutes.
	@$(PYTEST) tests/backends

test-spark: $(VENV)/.installed-tests ## Run the tests of maintenance, migration and telemetry on Spark; about 15 minutes.
	@$(PYTEST) tests/unit/spark tests/spark

test: $(VENV)/.installed-tests .tools ## Run every check and every test, JOBS=2 files at a time, 31 minutes; the last line is the count.
	@$(MAKE) --no-print-directory check || { echo 'make check failed: no test was run'; echo '0 passed, 1 failed, 0 skipped'; exit 1; }
	@$(BIN)/python -m pytest -p tests.support.closing_line -n $(JOBS) --dist loadfile --no-loadscope-reorder $(TESTS)

mission: $(VENV)/.installed-tests ## Print which behaviours of the mission have a test.
	@$(BIN)/python -m tests.support.mission

bench: $(VENV)/.installed-tests ## Measure speed; never part of the tests.
	@$(BIN)/python -m tests.bench $(BENCH)

demo: $(VENV)/.installed-demo ## Run a pipeline on Spark and make a page about it, 4 minutes; SCALE=, KEEP=1 leaves the catalog running.
	@$(BIN)/python -m nunatak_spark.demo $(if $(SCALE),--scale '$(SCALE)') $(if $(KEEP),--keep) $(DEMO)

soak: $(VENV)/.installed-tests .tools ## Run the fault tests at full size, 45 minutes; REPORT=1 writes a page, SOAK="F1 F5" chooses.
	@$(BIN)/python -m tests.soak $(if $(REPORT),--report) $(SOAK)

docs: $(VENV)/.installed-tests ## Write docs/reference anew from the code.
	@$(BIN)/python docs/generate.py

openapi: $(VENV)/.installed-tests ## Write the OpenAPI document of our routes anew.
	@mkdir -p spec && $(BIN)/python -m nunatak.api.openapi > spec/rest-catalog.json
	@$(BIN)/python -m nunatak.api.openapi management > spec/management.json

lock: ## Choose the versions of all dependencies anew, with their hashes; KEEP=1 changes only what pyproject.toml asks for.
	@work=$$(mktemp -d) && trap 'rm -rf "$$work"' EXIT && $(PYTHON) -m venv "$$work/venv" \
	&& "$$work/venv/bin/python" -m pip install --no-input --disable-pip-version-check --quiet uv \
	&& printf '%s\n' 'hatchling>=1.27' editables > "$$work/build.in" \
	&& lock() { [ -n "$(KEEP)" ] && cp requirements/$$1.lock "$$work/$$1.lock" 2> /dev/null || true; "$$work/venv/bin/uv" pip compile --quiet --universal \
	   --python-version 3.11 --generate-hashes --no-header --no-annotate "$${@:2}" pyproject.toml "$$work/build.in" -o "$$work/$$1.lock"; } \
	&& lock test --group test --group lint --group release && lock serve -c "$$work/test.lock" && lock demo --extra migration --group demo -c "$$work/test.lock" \
	&& mkdir -p requirements && cp "$$work"/*.lock requirements/

release: $(VENV)/.installed-tests ## Make the release VERSION=x.y.z here: changelog, commit, tag, and dist/ with wheel and sdist.
	@[[ '$(VERSION)' =~ ^[0-9]+\.[0-9]+\.[0-9]+$$ ]] || { echo 'Name the version: make release VERSION=1.2.3' >&2; exit 2; }
	@[ -z "$$(git status --porcelain)" ] || { echo 'The working tree has changes: commit them or take them away first' >&2; exit 1; }
	@! git rev-parse --quiet --verify 'refs/tags/v$(VERSION)' > /dev/null || { echo 'v$(VERSION) is tagged already' >&2; exit 1; }
	@rm -rf dist
	@{ $(BIN)/python -m hatchling version '$(VERSION)' > /dev/null && $(BIN)/towncrier build --yes --version '$(VERSION)' \
	&& $(BIN)/python -m hatchling build && git add --all && git commit --quiet --message 'Release $(VERSION)'; } \
	|| { git reset --quiet --hard; exit 1; }  # the tree was clean: nothing is lost
	@git tag --annotate --message 'Nunatak $(VERSION)' 'v$(VERSION)'
	@echo 'v$(VERSION) is committed and tagged here, and dist/ holds what to upload; nothing was pushed.'

clean: ## Remove what the commands above made, but not the data.
	rm -rf .venv $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests docs -name __pycache__ -type d -prune -exec rm -rf {} +

# Some systems keep ensurepip in a package of its own; there the outer pip fills the environment.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo 'Nunatak needs Python 3.11 or newer; name one with PYTHON=' >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) > /dev/null 2>&1 \
	|| { $(PYTHON) -m venv --clear --without-pip $(VENV) && $(PYTHON) -m pip --python $(BIN)/python install --no-input --quiet pip; }

# Every file that is installed has a hash in the lock, the build backend too. The project itself is installed in place, so
# a change of the code needs no new installation; a change of the dependencies does.
LOCKED = $(PIP_INSTALL) --require-hashes -r requirements/$(1).lock && $(PIP_INSTALL) --no-deps --no-build-isolation -e .

$(VENV)/.installed: pyproject.toml requirements/serve.lock | $(BIN)/python
	@echo 'Installing into $(VENV) …' >&2
	@$(call LOCKED,serve)
	@touch $@

$(VENV)/.installed-tests: pyproject.toml requirements/test.lock | $(BIN)/python
	@echo 'Installing what the tests need into $(VENV) …' >&2
	@$(call LOCKED,test)
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-demo: pyproject.toml requirements/demo.lock | $(BIN)/python
	@echo 'Installing what the demo needs into $(VENV) …' >&2
	@$(call LOCKED,demo)
	@touch $@ $(VENV)/.installed

# The seed documents' examples run with curl itself, and the database suite on a PostgreSQL and a MariaDB of its own.
.tools:
	@ls /usr/lib/postgresql/*/bin/initdb > /dev/null 2>&1 || { command -v apt-get > /dev/null && apt-get -qq update && apt-get -qq install -y postgresql; } > /dev/null 2>&1 || true
	@ls /usr/sbin/mariadbd > /dev/null 2>&1 || { command -v apt-get > /dev/null && apt-get -qq update && apt-get -qq install -y --no-install-recommends mariadb-server; } > /dev/null 2>&1 || true
	@command -v curl > /dev/null || { command -v apt-get > /dev/null && apt-get -qq update && apt-get -qq install -y curl; } > /dev/null 2>&1 || true

.PHONY: help serve check unit test-api test-db test-spark test mission bench demo soak docs openapi lock release clean .tools
