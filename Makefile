# Everything from nothing but make and Python 3.11 or newer; see `make help`.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
ARGS ?=
# Parallel workers of tests, each with brokers of its own for a while; see tests/parallel.py.
WORKERS ?= 3
PARALLEL = -n $(WORKERS) --dist loadgroup
LOCKED := -q pyproject.toml --universal --generate-hashes --no-emit-index-url --no-header --extra demo

# Tests start the program hundreds of times: compiled files are kept whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo hello docs test test-all planted differential lint format bench bench-spark bench-scale failover-run retention-run moves-run pipeline-run matrix-run soak lock lock-jars sbom clean

help: ## Show this list.
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | while IFS="$$(printf '\t')" read -r name text; do \
		printf '  make %-13s %s\n' "$$name" "$$text"; done

setup: ## Make .venv, with Spark, and fetch all servers into .servers; does nothing when all is there.
	@$(if $(PYTHON),,$(error diskless-proxy needs Python 3.11 or newer: install one, or say make PYTHON=/path/to/python))$(PYTHON) scripts/setup.py

demo: ## Run the demo; make demo ARGS="--seconds 60" passes arguments on.
	@$(if $(PYTHON),,$(error diskless-proxy needs Python 3.11 or newer: install one, or say make PYTHON=/path/to/python))$(PYTHON) scripts/setup.py --demo
	@.venv/bin/diskless-proxy demo $(ARGS)

hello: ## Send a diskless record from rack to rack; make demo ARGS="--serve" has to run, in another terminal.
	@test -x .venv/bin/diskless-proxy || { echo 'make demo ARGS="--serve" first, and leave it running' >&2; exit 1; }
	@.venv/bin/diskless-proxy demo hello $(ARGS)

docs: setup ## Build the pages of docs/ with search, into build/docs; make docs ARGS="serve" shows them at 127.0.0.1:8000.
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs $(or $(ARGS),build)

test: setup ## Run the quick tests, the gate of every change; make test ARGS="tests/unit" runs the tests of those paths.
	@.venv/bin/python -m pytest $(or $(ARGS),--tier quick $(PARALLEL))

test-all: setup ## Run all tests; ARGS are added, as in make test-all ARGS="-x".
	@.venv/bin/python -m pytest --tier full $(PARALLEL) $(ARGS)

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
	@.venv/bin/python -m benchmarks.recovery
	@.venv/bin/python -m benchmarks.peers

bench-spark: setup ## Measure the pipeline on Spark, and write benchmarks/results; ARGS are passed on.
	@.venv/bin/python -m benchmarks.spark $(ARGS)

bench-scale: setup ## Measure clusters of the store with 1, 2, 4 and 8 servers, and write benchmarks/results/scale.json.
	@.venv/bin/python -m benchmarks.scale $(ARGS)

failover-run: setup ## Failovers of the coordinator's store under load for ten minutes; make failover-run ARGS="--minutes 1 --seed 7".
	@.venv/bin/python -m tests.failovers_under_load $(ARGS)

planted: setup ## Plant bugs in a copy, one at a time, and name the tests that notice; make planted ARGS="cache".
	@.venv/bin/python -m tests.planted $(ARGS)

retention-run: setup ## Retention and deletions under load for ten minutes; make retention-run ARGS="--minutes 1 --seed 7".
	@.venv/bin/python -m tests.retention_under_load $(ARGS)

moves-run: setup ## Reads while leaders, replicas and brokers move, for ten minutes; make moves-run ARGS="--seconds 60 --seed 7".
	@.venv/bin/python -m tests.moves_under_load $(ARGS)

pipeline-run: setup ## Merge, compact and audit under load, killed at random, for ten minutes; ARGS="--minutes 1 --seed 7" and such.
	@.venv/bin/python -m tests.pipeline_under_load $(ARGS)

matrix-run: setup ## Every fault for every part under `diskless-proxy verify`, for hours; ARGS="--minutes 30 --seed 7 --report docs/matrix.md".
	@.venv/bin/python -m tests.matrix $(ARGS)

soak: setup ## The long run: everything at once for an hour, checked for losses and growth; ARGS="--minutes 5 --seed 7" and such.
	@.venv/bin/python -m tests.soak $(ARGS)

lock: ## Renew the locks of Python's packages after a change of pyproject.toml; needs uv.
	uv pip compile $(LOCKED) --extra dev --extra docs --extra pipeline -o requirements-pipeline.lock
	uv pip compile $(LOCKED) -c requirements-pipeline.lock -o requirements.lock
	echo 'cyclonedx-bom>=7' | uv pip compile - -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -o deploy/container/sbom.lock

sbom: ## Write the software bill of materials of the image, build/sbom/diskless-proxy.cdx.json (CycloneDX).
	@$(PYTHON) scripts/sbom.py

lock-jars: ## Renew the jars.lock files after a change of a pom.xml.
	@.venv/bin/python scripts/fetch_servers.py --lock

clean: ## Remove .venv, .servers and caches.
	rm -rf .venv .servers .mypy_cache .pytest_cache .ruff_cache .hypothesis
