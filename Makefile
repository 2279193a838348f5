# Two commands are all a fresh machine needs: `make demo` and `make test`. Both set up `.venv` first.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Every process of the tests would compile the same files again.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
AXE := .cache/axe/axe.min.js
CODE := tierlog gateway offloader spark cold_tier hot_tier tests benchmarks deploy terraform
PIP := $(BIN)/pip --disable-pip-version-check --quiet
SAY := printf '\033[36m▸\033[0m %s\n'

# Installs Debian packages where that is possible without asking; what needs them is skipped elsewhere.
AS_ROOT := if [ "$$(id -u)" = 0 ]; then root=; else root='sudo -n'; fi
APT = $(AS_ROOT); command -v apt-get >/dev/null && $$root true 2>/dev/null \
	&& { $$root apt-get install -y -qq --no-install-recommends $(1) >/dev/null 2>&1 \
	  || { $$root apt-get update -qq >/dev/null 2>&1 \
	    && $$root apt-get install -y -qq --no-install-recommends $(1) >/dev/null 2>&1; }; }

.PHONY: help demo demo-cluster check test test-all bench lint format venv kafka-jars test-tools etcd settings-page rooms pictures checkov flink constraints clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(INSTALLED) ## the service on embedded defaults: produce, consume, replay, kill -9, recover
	@$(BIN)/tierlog demo

demo-cluster: $(INSTALLED) etcd ## three brokers: kill -9 of a leader under load, and nothing is lost
	@$(BIN)/tierlog demo --cluster

# Tests go to the workers in the order of tests/support/turns.py: the long ones first.
PYTEST := $(BIN)/pytest -q --no-loadscope-reorder
UNIT := $(addprefix tests/,hot_tier cold_tier offloader gateway)

check: lint ## the inner loop: lint, types and the tests that start no process
	@$(SAY) 'unit tests, three at a time: some of them wait'
	@$(PYTEST) -n 3 $(UNIT) -m 'not slow and not java and not process'

# What pytest makes of the tests' modules is kept, but four workers at once would each make it of all of them: one does
# it first, while the linters leave a core.
test: $(INSTALLED) ## lint, types and every test that is not slow
	@$(PYTEST) --collect-only >/dev/null 2>&1 & $(MAKE) lint kafka-jars test-tools
	@$(SAY) 'tests, four at a time: many of them wait'
	@$(PYTEST) -n 4 -m 'not slow'

test-all: test ## the slow ones too: long chaos runs and simulations
	@$(SAY) 'slow tests: chaos and simulations'
	@$(BIN)/pytest -q -m slow

bench: $(INSTALLED) kafka-jars test-tools ## tierlog beside Apache Kafka on this machine, as ratios
	@$(BIN)/python -m benchmarks
	@$(BIN)/python -m benchmarks.cluster
	@$(BIN)/python -m benchmarks.tls
	@$(BIN)/python -m benchmarks.transactions
	@$(BIN)/python -m benchmarks.small
	@$(BIN)/python -m benchmarks.cuts
	@$(BIN)/python -m benchmarks.tiers
	@$(BIN)/python -m benchmarks.sql
	@$(BIN)/python -m benchmarks.spark_scan
	@$(BIN)/python -m benchmarks.workers

lint: $(INSTALLED) ## ruff, mypy, import-linter
	@$(SAY) 'ruff: lint and format'
	@$(BIN)/ruff check --quiet $(CODE)
	@$(BIN)/ruff format --quiet --check $(CODE)
	@$(SAY) 'mypy --strict'
	@$(BIN)/mypy --no-error-summary
	@$(SAY) 'import-linter: which way imports point'
	@$(BIN)/lint-imports --no-logo >.import_linter_cache.log 2>&1 || { cat .import_linter_cache.log; exit 1; }

format: $(INSTALLED) ## rewrites the code in the one format
	@$(BIN)/ruff check --quiet --fix $(CODE) || true
	@$(BIN)/ruff format $(CODE)

venv: $(INSTALLED) ## only sets up .venv; the command is then .venv/bin/tierlog
	@$(SAY) '.venv is ready: the command is .venv/bin/tierlog'

# The first Python from 3.11 up that is here. The pinned versions are tested on 3.11; they install and serve on 3.12.
$(INSTALLED): pyproject.toml constraints.txt
	@for python in $(PYTHON) python3.11 python3.12 python3.13 python3; do \
	  $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break || python=; \
	done; \
	if [ -z "$$python" ]; then \
	  echo 'tierlog needs Python 3.11 or newer: install it, or say make PYTHON=/path/to/python' >&2; exit 1; \
	fi; \
	if ! [ -x $(BIN)/pip ]; then \
	  $(SAY) "setting up .venv with $$($$python --version)"; \
	  if ! $$python -c 'import ensurepip' 2>/dev/null; then \
	    $(SAY) 'installing python3-venv (apt)'; \
	    $(call APT,python3-venv) || { echo 'this Python has no venv module: install python3-venv' >&2; exit 1; }; \
	  fi; \
	  $$python -m venv $(VENV); \
	fi
	@$(SAY) 'installing tierlog and its pinned dependencies into .venv (some minutes, once)'
	@$(PIP) install -c constraints.txt setuptools wheel
	@$(PIP) install -c constraints.txt --no-build-isolation -e '.[dev]'
	@$(SAY) 'compiling the kernels for this processor (once)'
	@$(BIN)/python -c 'import tierlog.broker'
	@touch $@

# Apache Kafka's jars, for its own tools in tests/compat and as the peer in benchmarks: from Maven Central.
kafka-jars: $(INSTALLED) ## Apache Kafka's jars, for its own tools in tests and as the peer in benchmarks
	@if ! command -v java >/dev/null || ! command -v mvn >/dev/null; then \
	  $(SAY) 'installing Java and Maven (apt) for Apache Kafka'"'"'s own tools'; \
	  $(call APT,default-jre-headless maven) \
	    || $(SAY) 'no Java and Maven here and no way to install them: tests with Apache Kafka'"'"'s tools are skipped'; \
	fi
	@if command -v java >/dev/null && command -v mvn >/dev/null; then $(BIN)/python -m benchmarks.peer fetch; fi

# kcat for tests/compat, FUSE and a compiler for the faulty disks of tests/chaos and the load of benchmarks, a browser for
# tests/console.
test-tools: etcd $(AXE) ## Debian packages that tests need; what cannot be installed is skipped
	@if ! command -v kcat fusermount3 cc ip nft | wc -l | grep -q 5; then \
	  $(SAY) 'installing kcat, fuse3, gcc, iproute2 and nftables (apt) for compatibility and fault tests'; \
	  $(call APT,kcat fuse3 gcc libc6-dev iproute2 nftables) \
	    || $(SAY) 'no way to install them here: the tests that need them are skipped'; \
	fi
	@if ! command -v chromium chromedriver prometheus promtool | wc -l | grep -q 4; then \
	  $(SAY) 'installing chromium and prometheus (apt) for tests of the console and of the alerts'; \
	  $(call APT,chromium chromium-driver fonts-dejavu-core prometheus) \
	    || $(SAY) 'no way to install them here: the tests that need them are skipped'; \
	fi

# A checker of web pages for people with disabilities, for tests/console alone: from the npm registry, where npm is.
$(AXE):
	@mkdir -p $(@D)
	@if command -v npm >/dev/null && cd $(@D) && npm pack --silent axe-core@4.14.0 >/dev/null 2>&1; then \
	  tar -xzf axe-core-4.14.0.tgz --strip-components=1 package/axe.min.js && rm axe-core-4.14.0.tgz; \
	else \
	  $(SAY) 'no axe-core from npm here: the tests that need it are skipped'; \
	fi

# The metadata store of a cluster. Debian starts one as a service where it can; ours run on ports of their own.
etcd: ## the metadata store of a cluster, as a Debian package
	@if ! command -v etcd >/dev/null; then \
	  $(SAY) 'installing etcd (apt) for clusters of brokers'; \
	  $(call APT,etcd-server) \
	    || $(SAY) 'no etcd here and no way to install it: what needs a cluster is skipped'; \
	fi

# After a change of settings: docs/SETTINGS.md is generated, a test checks that it is current.
settings-page: $(INSTALLED) ## writes docs/SETTINGS.md again after a change of settings
	@$(BIN)/python -m tierlog.settings_page docs/SETTINGS.md

# After rooms or their imports have changed: the drawing in docs/ARCHITECTURE.md is generated, a test checks that it is current.
rooms: $(INSTALLED) ## draws the rooms in docs/ARCHITECTURE.md again after imports have changed
	@$(BIN)/python -m tests.docs.rooms --write

# Of a broker that has been at work for some minutes.
pictures: $(INSTALLED) ## takes the docs' pictures of the console anew
	@TIERLOG_PICTURES=docs/pictures $(BIN)/pytest -q tests/console/test_docs_pictures.py

# For tests/terraform: its pins do not fit ours, so it has a virtual environment of its own.
checkov: ## a checker of Terraform files, for tests/terraform
	@python3 -m venv .cache/checkov
	@.cache/checkov/bin/pip --disable-pip-version-check --quiet install checkov==3.3.30

# For tests/compat, likewise. Its connector is in Maven Central.
flink: ## Apache Flink with its Kafka connector, for tests/compat
	@for python in python3.11 python3.12 python3.10 python3; do command -v $$python >/dev/null && break; done; \
	$$python -m venv .cache/flink
	@.cache/flink/bin/pip --disable-pip-version-check --quiet install apache-flink==2.2.1
	@mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy -DoutputDirectory=$(CURDIR)/.cache/flink/jars \
	  -Dartifact=org.apache.flink:flink-sql-connector-kafka:5.0.0-2.2

constraints: ## pins the newest versions of all dependencies
	@rm -rf .cache/constraints && python3 -m venv .cache/constraints
	@.cache/constraints/bin/pip install --quiet setuptools wheel '.[dev]'
	@head -2 constraints.txt >.cache/constraints.txt
	@.cache/constraints/bin/pip freeze --all | grep -v -i -E '^(tierlog|pip)\b' >>.cache/constraints.txt
	@mv .cache/constraints.txt constraints.txt && rm -rf .cache/constraints

clean: ## removes .venv and everything that was built or cached
	@rm -rf $(VENV) .cache build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache*
