# The commands of a checkout. `make help` lists them.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
VENV := .venv
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)

.PHONY: help setup cluster clean-cluster test test-long lint unit molecule docs benchmarks build

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Install what the other commands need: system packages, .venv, the link that makes trainyard.cluster resolve
	@tests/setup.sh

cluster: setup ## Boot a simulated GPU cluster, run site.yml on it, train a model on it
	@python -m tests.simulator cluster

clean-cluster: ## Remove the simulated cluster and its hosts (images and package cache stay)
	@python -m tests.simulator down cluster

test: setup ## Run every check: lint, unit and contract tests, every molecule scenario
	@python -m tests.run

test-long: setup ## Run the scenarios that take long: kernel modules built from source, the whole CUDA toolkit
	@python -m tests.run --long

lint: setup ## Run the linters and the type checker
	@python -m tests.run lint

unit: setup ## Run unit and contract tests
	@python -m tests.run unit

molecule: setup ## Run every molecule scenario
	@python -m tests.run molecule

docs: setup ## Write the generated tables of the roles' README files again
	@python -m tests.role_readme --write

benchmarks: export PYTHONPATH := .cache/collections
benchmarks: setup ## Measure the parsers and gpu_facts, in times and ratios
	@python -m tests.benchmarks.parsers
	@python -m tests.benchmarks.gpu_facts

build: setup ## Build the collection's tarball into .cache/build
	@ansible-galaxy collection build --force --output-path .cache/build
