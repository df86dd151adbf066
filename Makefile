# coldplate: every target sets up what it needs in a private environment, .venv, and touches nothing else.

PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
PROGRAMS := $(CURDIR)/.programs/usr/bin
export PATH := $(PATH):$(PROGRAMS)

.DEFAULT_GOAL := help
export DESTDIR PREFIX EXTRAS UNITDIR SYSUSERSDIR UDEVDIR TMPFILESDIR
.PHONY: help run test test-systemd install uninstall check format bench score generate screenshots hardware clean programs

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  ARGS=... is passed on: make run ARGS='--scenario straggler', make test ARGS='-k encoder'"

run: .venv/run.stamp ## Run the daemon: on real GPUs where there is a driver, else on a synthetic node
	@case "$(ARGS)" in *--backend*|*--scenario*|*--config*) exec $(BIN)/coldplate run $(ARGS);; esac; \
	if $(BIN)/python -c 'import ctypes; ctypes.CDLL("libnvidia-ml.so.1")' 2>/dev/null; then \
		exec $(BIN)/coldplate run $(ARGS); \
	fi; \
	echo "No NVIDIA driver here: running a synthetic node. For this machine alone: make run ARGS='--backend none'"; \
	exec $(BIN)/coldplate run --backend synthetic $(ARGS)

test: .venv/dev.stamp programs ## Run the tests
	$(BIN)/python -m pytest -n 3 --dist loadfile $(ARGS)

check: .venv/dev.stamp ## Check format, style and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

MACHINE ?= any
test-systemd: .venv/dev.stamp ## Try the installed units on a real systemd: MACHINE=namespace (quick), full (its own kernel), any
	$(BIN)/python -m tests.systemd --machine $(MACHINE) $(ARGS)

install: ## Install on this machine, as root: DESTDIR, PREFIX=/opt/coldplate, PYTHON, EXTRAS (packaging/install.sh)
	@PYTHON='$(PYTHON)' sh packaging/install.sh install

uninstall: ## Remove what install brought; configuration and state stay
	@sh packaging/install.sh uninstall

format: .venv/dev.stamp ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: .venv/bench.stamp programs ## Measure against peers and print ratios
	$(BIN)/python -m tests.bench $(ARGS)

score: .venv/dev.stamp ## Play every scenario and write docs/detection.md
	$(BIN)/python -m tests.score $(ARGS)

generate: .venv/dev.stamp ## Write the generated documents anew
	$(BIN)/coldplate render metrics --out docs/metrics.md
	$(BIN)/coldplate render scenarios --out docs/scenarios.md
	$(BIN)/python -m dashboards.generate

PICTURES := .programs/pictures
screenshots: .venv/dev.stamp programs ## Draw the dashboards with Grafana's own components into docs/images (npm, Chromium)
	@mkdir -p $(PICTURES)
	@cp tests/dashboards/pictures/package.json tests/dashboards/pictures/*.jsx tests/dashboards/pictures/*.mjs $(PICTURES)
	npm install --prefix $(PICTURES) --legacy-peer-deps --ignore-scripts --no-audit --no-fund
	$(BIN)/python -m tests.dashboards.pictures.collect $(PICTURES)/data.json 120
	cd $(PICTURES) && node shoot.mjs data.json $(CURDIR)/docs/images

hardware: .venv/dev.stamp ## Check the agent against nvidia-smi on a machine with a GPU
	$(BIN)/python -m tests.hardware $(ARGS)

programs:
	@sh tests/programs.sh

clean: ## Remove what the other targets made
	rm -rf .venv .programs build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "coldplate needs Python 3.10 or newer; name one with make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv .venv || { rm -rf .venv; sh tests/programs.sh venv && $(PYTHON) -m venv .venv; }

.venv/run.stamp: pyproject.toml | .venv/bin/python
	@echo "setting up .venv ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

.venv/dev.stamp: pyproject.toml | .venv/bin/python
	@echo "setting up .venv for development ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@ .venv/run.stamp

.venv/bench.stamp: .venv/dev.stamp
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,bench]'
	@touch $@
