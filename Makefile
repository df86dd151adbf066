# coldplate: every target sets up what it needs in .venv and .programs, here, and touches nothing else on the machine.

PYTHON ?= python3
ARGS ?=
EXTRAS ?= top
BIN := .venv/bin
BRING = $(PYTHON) -ES tests/lab/bring/__main__.py
export PATH := $(CURDIR)/.programs/usr/bin:$(PATH)
# Set in many a container. The tests start hundreds of processes, and each would compile what it imports anew: a third of their time.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
export DESTDIR PREFIX EXTRAS UNITDIR SYSUSERSDIR UDEVDIR TMPFILESDIR BINDIR SHAREDIR ZSHDIR
.PHONY: help setup run test test-release test-bare lock test-all test-systemd test-ansible install uninstall check format bench score generate screenshots
.PHONY: deb rpm single test-packages demo fleet bench-scale drill soak siege hardware clean mockups parity programs recent newest engines deployers python fuzz
.PHONY: .venv/run.stamp .venv/dev.stamp .venv/bench.stamp

help: ## Show the targets
	@awk -F ':.*### ' '/^[a-z-]+:.*### / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "For those who change coldplate (CONTRIBUTING.md):"
	@awk -F ':.* ## ' '/^[a-z-]+:.* ## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  ARGS=... is passed on: make run ARGS='--scenario straggler', make test ARGS='-k encoder'"

run: .venv/run.stamp ### Run the daemon: on real GPUs if there is a driver, else on a synthetic node
	@case "$(ARGS)" in *--backend*|*--scenario*|*--config*) exec $(BIN)/coldplate run $(ARGS);; esac; \
	if $(BIN)/python -c 'import ctypes; ctypes.CDLL("libnvidia-ml.so.1")' 2>/dev/null; then \
		exec $(BIN)/coldplate run $(ARGS); \
	fi; \
	echo "No NVIDIA driver here: running a synthetic node. For real sources only: make run ARGS='--backend none'"; \
	exec $(BIN)/coldplate run --backend synthetic $(ARGS)

test: .venv/dev.stamp programs ## Run the tests of the product (docs/dev/testing.md has the time): ARGS='-k encoder'; COVERAGE=1 measures and judges the lines run
	@$(if $(COVERAGE),rm -rf $(COVERED) && mkdir -p $(COVERED))
	@$(BIN)/python -m compileall -q -j 0 agent alerts exporters dashboards # else the first daemons of a clean clone compile while their tests wait
	$(if $(COVERAGE),$(BIN)/python -m coverage run -m pytest,$(BIN)/python -m pytest) -n 3 $(ARGS)
	@$(if $(COVERAGE),sh tests/lab/coverage.sh $(BIN)/python)

COVERED := $(CURDIR)/.programs/covered
ifdef COVERAGE
export COVERAGE_FILE := $(COVERED)/data
endif

test-release: .venv/dev.stamp programs recent engines deployers ## Run every test, as before a release: docs/dev/testing.md has the list and the time (root for all of it)
	@sh tests/lab/release.sh

SUITES ?= bookworm trixie sid
AS = root user
test-bare: python ## Run the tests in bare Debian roots: SUITES='trixie sid' AS=user MIRROR=... (root)
	@$(PYTHON) -ES tests/lab/bare/__main__.py --suites $(SUITES) --as $(AS) $(if $(MIRROR),--mirror $(MIRROR)) --tests="$(ARGS)"

test-all: ## Run the tests with every installed Python from 3.10 to 3.14: PYTHONS='python3.12 ...'
	@sh tests/lab/pythons.sh "$(ARGS)" $(PYTHONS)

setup: .venv/dev.stamp ## Set up .venv for development, and the hook that checks the subjects of commits
	@git config core.hooksPath .githooks

check: .venv/dev.stamp ## Check format, style and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m tests.structure.identifiers

parity: .venv/dev.stamp newest ## Compare rules with the newest Prometheus, query by query: ARGS='queries --seed 7 --queries 30000'
	$(BIN)/python -m tests.lab.parity $(ARGS)

test-systemd: .venv/dev.stamp ## Test the installed units on a real systemd, in namespaces of its own (root)
	$(BIN)/python -m tests.lab.systemd $(ARGS)

test-packages: .venv/dev.stamp deb rpm single ## Build the packages twice; install them in bare roots and on a real systemd (root)
	$(BIN)/python -m tests.lab.packages

mockups: .venv/dev.stamp ## Read Redfish mockups as a node's controller: DIR=FOLDER, such as DMTF's DSP2043
	@$(BIN)/python -m tests.equipment.mockups "$(DIR)"

test-ansible: .venv/dev.stamp deployers ## Play the Ansible role with the real Ansible, against directories of its own
	$(BIN)/python -m pytest -n 2 -m "" tests/lab/ansible $(ARGS)

install: ### Install on this machine, as root: DESTDIR, PREFIX=/opt/coldplate, PYTHON, EXTRAS (packaging/install.sh)
	@PYTHON='$(PYTHON)' sh packaging/install.sh install

uninstall: ### Remove what install installed; keep configuration and state
	@sh packaging/install.sh uninstall

ARCH ?= $(shell uname -m)
WHEELS = .programs/wheels/$(ARCH)
deb: python ### Build dist/coldplate_VERSION_ARCH.deb, which installs without a network: ARCH=aarch64 for another machine
	@$(BRING) wheels $(ARCH)
	@sh packaging/deb/build.sh $(WHEELS) $(ARCH) dist

rpm: python ### Build dist/coldplate-VERSION-1.ARCH.rpm, likewise
	@$(BRING) rpm
	@$(BRING) wheels $(ARCH)
	@sh packaging/rpm/build.sh $(WHEELS) $(ARCH) dist

single: python ### Build dist/coldplate-VERSION-ARCH.pyz: one file to try it out, with nothing installed
	@$(BRING) wheels $(ARCH)
	@sh packaging/single.sh $(WHEELS) $(ARCH) dist

format: .venv/dev.stamp ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: .venv/bench.stamp programs ## Measure against peers and print ratios
	$(BIN)/python -m tests.lab.bench $(ARGS)

drill: .venv/dev.stamp programs ## Try the daemon under every fault, and write docs/dev/reliability.md: ARGS='--short', ARGS='--only GPU'
	$(BIN)/python -m tests.lab.drill $(ARGS)

demo: .venv/dev.stamp programs ### Start a simulated site with a fault every few minutes, Prometheus and Alertmanager; say which alert to expect when
	@$(BIN)/python -m tests.lab.demo $(ARGS)

fleet: .venv/dev.stamp ## Start a fleet's servers over a simulated site, take a rack's power away, see who is told: ARGS=--stay
	@$(BRING) engines needed
	@$(BIN)/python -m tests.lab.fleet $(ARGS)

bench-scale: .venv/dev.stamp ## Measure a fleet's servers, and write the table of docs/dev/scale.md: ARGS='--nodes 100 400 --print'
	@$(BRING) engines needed
	$(BIN)/python -m tests.lab.fleet.scale_study $(ARGS)

soak: .venv/dev.stamp programs ## See whether anything grows in hours, and write docs/dev/reliability.md: ARGS='--seconds 5400 --hours 12'
	@exec nice -n 5 $(BIN)/python -m tests.lab.soak $(ARGS)

siege: .venv/dev.stamp programs ## Scrape a daemon beside 420 rude TLS clients, and say what was met: ARGS=20 (seconds)
	@$(BIN)/python -m tests.lab.bench.tls_siege $(ARGS)

fuzz: .venv/dev.stamp ## Fuzz every parser of what others wrote: ARGS='--target promql --seconds 60 --seed 7'
	@exec nice $(BIN)/python -W ignore -m tests.lab.fuzz $(ARGS)

score: .venv/dev.stamp ## Play every scenario and write docs/dev/detection.md; DATA=DIR: play measured power of others
	$(BIN)/python -m tests.lab.score $(if $(DATA),--data $(DATA)) $(ARGS)

generate: .venv/dev.stamp ## Regenerate the generated documents, manual pages and completion
	$(BIN)/coldplate render config-file --output packaging/coldplate.yaml
	$(BIN)/python -m tests.lab.generate
	$(BIN)/python -m dashboards.generate
	$(BIN)/python -m tests.screen.panes
	$(BIN)/python -m tests.deployment.chart_files
	$(BIN)/python -m tests.deployment.role_files
	$(BIN)/python -m tests.deployment.fleet_files

LOCK := .programs/lock
LOCKED = $(LOCK)/bin/uv pip compile --quiet --universal --python-version 3.10 --fork-strategy fewest --generate-hashes --no-annotate --upgrade \
	--custom-compile-command 'make lock' --output-file
lock: python ## Lock tools and what is installed to their newest versions, with hashes, for every Python and machine; list licences
	$(PYTHON) -m venv --clear $(LOCK)
	$(LOCK)/bin/python -m pip install --quiet --disable-pip-version-check 'uv>=0.9' 'cyclonedx-bom>=7'
	$(LOCKED) tests/tools.txt --group pyproject.toml:tools
	$(LOCKED) packaging/locks/build.txt packaging/locks/build.in
	$(LOCKED) packaging/locks/base.txt pyproject.toml
	for extra in top kubernetes; do $(LOCKED) packaging/locks/$$extra.txt --extra $$extra pyproject.toml || exit 1; done
	$(PYTHON) -m venv --clear --without-pip $(LOCK)/installed
	$(LOCK)/bin/uv pip install --quiet --python $(LOCK)/installed/bin/python --require-hashes \
		-r packaging/locks/top.txt -r packaging/locks/kubernetes.txt
	$(LOCK)/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible $(LOCK)/installed \
		| $(PYTHON) tests/lab/bring/bill_of_materials.py > packaging/sbom.cdx.json

PICTURES := .programs/pictures
screenshots: .venv/dev.stamp programs ## Draw overview and dashboards into docs/images, with Grafana's own components (npm, Chromium)
	@mkdir -p $(PICTURES)
	@cp tests/dashboards/pictures/package.json tests/dashboards/pictures/*.jsx tests/dashboards/pictures/*.mjs $(PICTURES)
	npm install --prefix $(PICTURES) --legacy-peer-deps --ignore-scripts --no-audit --no-fund
	$(BIN)/python -m tests.dashboards.pictures.overviews $(PICTURES)/overviews 60
	cd $(PICTURES) && node overviews.mjs overviews $(CURDIR)/docs/images
	$(BIN)/python -m tests.dashboards.pictures.collect $(PICTURES)/data.json 120
	cd $(PICTURES) && node shoot.mjs data.json $(CURDIR)/docs/images

hardware: .venv/dev.stamp ### Check the agent against nvidia-smi on a machine with a GPU
	$(BIN)/python -m tests.lab.hardware $(ARGS)

python:
	@command -v $(PYTHON) >/dev/null || { echo "coldplate needs Python 3.10 or newer, and there is no $(PYTHON) here:" \
		"install python3, or name another with make PYTHON=python3.12" >&2; exit 1; }

programs: python
	@$(BRING) programs

recent: python
	@$(BRING) recent

newest: python
	@$(BRING) newest

engines: python
	@$(BRING) engines

deployers: .venv/dev.stamp
	@$(BRING) deployers

clean: ### Remove what the other targets created
	rm -rf .venv .programs build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

# These look at .venv each time: one that is interrupted, moved or of a Python that is gone looks up to date to make.
NAMED := $(if $(filter-out file,$(origin PYTHON)),named)
.venv/run.stamp .venv/dev.stamp .venv/bench.stamp: python
	@$(BRING) environment $(@F:.stamp=) $(NAMED)
