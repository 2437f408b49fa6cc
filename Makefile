# Everything from nothing but make and Python 3.11 or newer; see `make help`.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test differential lint format bench retention-run moves-run lock-jars clean

help: ## Show this list.
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | while IFS="$$(printf '\t')" read -r name text; do \
		printf '  make %-13s %s\n' "$$name" "$$text"; done

setup: ## Make .venv and fetch all servers into .servers; does nothing when all is there.
	@$(if $(PYTHON),,$(error diskless-proxy needs Python 3.11 or newer: install one, or say make PYTHON=/path/to/python))$(PYTHON) scripts/setup.py

demo: ## Run the demo; make demo ARGS="--seconds 60" passes arguments on.
	@$(if $(PYTHON),,$(error diskless-proxy needs Python 3.11 or newer: install one, or say make PYTHON=/path/to/python))$(PYTHON) scripts/setup.py --demo
	@.venv/bin/diskless-proxy demo $(ARGS)

test: setup ## Run all tests; make test ARGS="tests/unit" runs some.
	@.venv/bin/python -m pytest $(ARGS)

differential: setup ## Compare generated operations on both kinds of topics; ARGS="--operations 2000 --seed 1" and such.
	@.venv/bin/python -m tests.differential $(ARGS)

lint: setup ## Check format, lint and types.
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy

format: setup ## Format the code, and repair what the linter can repair.
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

bench: setup ## Measure, and write benchmarks/results; ARGS are passed on.
	@.venv/bin/python -m benchmarks.run $(ARGS)

retention-run: setup ## Retention and deletions under load for ten minutes; make retention-run ARGS="--minutes 1 --seed 7".
	@.venv/bin/python -m tests.retention_under_load $(ARGS)

moves-run: setup ## Reads while leaders, replicas and brokers move, for ten minutes; make moves-run ARGS="--seconds 60 --seed 7".
	@.venv/bin/python -m tests.moves_under_load $(ARGS)

lock-jars: ## Renew the jars.lock files after a change of a pom.xml in deploy/kafka.
	@.venv/bin/python scripts/fetch_servers.py --lock

clean: ## Remove .venv, .servers and caches.
	rm -rf .venv .servers .mypy_cache .pytest_cache .ruff_cache .hypothesis
