# One command each: every target first sets up what it needs, and repeats nothing that is done.
# The exit status of the programs below is 0, 1 (your mistake) or 2 (a cell failed); make itself
# turns both into its own 2 and prints the number. Call `.venv/bin/python -m …` to get it as it is.

PYTHON ?= python3
SCENARIO ?=
SWEEP ?=
RUN ?=
QUICK ?=
ARGS ?=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules
PY := .venv/bin/python
export SCENARIO SWEEP RUN # by the environment, so that no name can end the shell's quotes

# Under sudo, root is for apt-get only: all else runs as the user who called it, and all files
# are theirs.
ifneq ($(filter-out 0,$(SUDO_UID)),)
ifeq ($(shell id -u),0)
AS_USER := setpriv --reuid $(SUDO_UID) --regid $(SUDO_GID) --init-groups \
	env HOME=$(shell getent passwd $(SUDO_UID) | cut -d: -f6)
endif
endif

.PHONY: help
help: ## this page
	@printf 'make TARGET [NAME=value …]\n\n'
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  %-11s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
	@printf '\nPYTHON=…  the Python (3.10 or newer) that .venv is made with; now: %s\n' '$(PYTHON)'
	@printf 'ARGS=…    more options for the program that the target runs\n'

.PHONY: python venv
python:
	@command -v '$(PYTHON)' > /dev/null || { echo "error: no $(PYTHON) here; as root, run:\
	 apt-get install -y python3 python3-venv" >&2; exit 1; }

venv: python # enough for what boots no guest
	@$(PYTHON) -m testbed.setup python

.PHONY: setup
setup: python ## packages, guest kernel and .venv; the other targets do it by themselves
	@$(PYTHON) -m testbed.setup

.PHONY: doctor
doctor: python ## what works on this machine, and what mends the rest
	@$(PYTHON) -m testbed doctor $(ARGS)

.PHONY: experiment
experiment: python ## SCENARIO=congested: run it, write results/congested/latest/
	@$(PYTHON) -m experiments.precheck "$$SCENARIO"
	@$(MAKE) --no-print-directory setup
	@$(AS_USER) $(PY) -m experiments run "$$SCENARIO" $(ARGS)

.PHONY: sweep
sweep: python ## SWEEP=quick: many variations; runs what is missing, goes on where it was stopped
	@$(PYTHON) -m experiments.precheck --sweep "$$SWEEP"
	@$(MAKE) --no-print-directory setup
	@$(AS_USER) $(PY) -m experiments sweep "$$SWEEP" $(ARGS)

.PHONY: reproduce
reproduce: setup ## the paper's figures, docs/reproduction.md (QUICK=1: in brief)
	@$(AS_USER) $(PY) -m experiments reproduce $(if $(QUICK),--quick) $(ARGS)

.PHONY: report
report: ## RUN=results/congested/latest: tables, pictures and page of a run again
	@[ -n "$${RUN:=$$SCENARIO}" ] || { echo "error: RUN=… is missing: a run's folder, or a\
	 scenario's name for its latest run" >&2; exit 1; }
	@$(MAKE) --no-print-directory venv
	@$(AS_USER) $(PY) -m experiments report "$${RUN:-$$SCENARIO}" $(ARGS)

.PHONY: notebook
notebook: venv ## results/analysis.ipynb, executed on the latest results (RUN=… on that run)
	@$(AS_USER) $(PY) -m experiments notebook $(if $(RUN),"$$RUN") $(ARGS)

.PHONY: bench
bench: setup ## speed of the codecs, the start of a cell, what a guest costs
	@$(AS_USER) $(PY) -m netsenseml bench $(ARGS)
	@$(AS_USER) $(PY) -m experiments bench $(ARGS)

.PHONY: test
test: setup ## all tests that this machine can run (ARGS='-k clock', …)
ifdef ARGS
	@$(AS_USER) $(PY) -m pytest $(ARGS)
else # on all processors at once, but for the tests that want the machine for themselves
	@failed=0; \
	$(AS_USER) $(PY) -m pytest -n "$$(nproc)" --dist loadfile -m "not alone" || failed=1; \
	$(AS_USER) $(PY) -m pytest -m alone || failed=1; \
	exit $$failed
endif

.PHONY: lint
lint: venv ## ruff and mypy
	@$(AS_USER) $(PY) -m ruff check .
	@$(AS_USER) $(PY) -m ruff format --check .
	@$(AS_USER) $(PY) -m mypy

.PHONY: clean
clean: ## remove .venv and caches in here; results and the guest kernel stay
	@rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find $(wildcard netsenseml topologies testbed experiments tests) -name __pycache__ -prune -exec rm -rf {} +
