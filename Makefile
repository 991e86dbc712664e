# Every target sets up what it needs by itself: a virtual environment with the versions of constraints.txt
# and, for the tests, an MQTT broker. Start with `make demo`, then `make test`.
#
# The environment is .venv, made with the first suitable Python on the PATH. `make test PYTHON=python3.13` (or a
# path) chooses the interpreter; each version so chosen has an environment of its own, such as .venv-3.13.

PYTHON  ?=
WORKERS ?= 2

ifeq ($(PYTHON),)
VENV        := .venv
else
CHOSEN      := $(shell sh tests/support/find_python.sh '$(PYTHON)')
$(if $(filter 3.11 3.12 3.13,$(firstword $(CHOSEN))),,$(error $(CHOSEN)))
VENV        := .venv-$(firstword $(CHOSEN))
endif
VENV_PYTHON := $(VENV)/bin/python
READY       := $(VENV)/.ready

# Parties are processes or pool workers: one numeric thread each, so that they do not fight for the cores.
export OMP_NUM_THREADS ?= 1
# Debian installs mosquitto where an ordinary user's PATH does not look.
export PATH := $(PATH):/usr/sbin:/usr/local/sbin

.DEFAULT_GOAL := help
.PHONY: site help demo test test-long check model bench docs notebooks clean broker spin chromium

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

demo: $(READY) ## five peers train on real digits with AMPC, beside plain FedAvg; who saw what
	$(VENV)/bin/veilsum simulate --scheme ampc --parties 5 --rounds 3 --task digits --seed 7 --compare plain

test: $(READY) broker spin ## the whole default suite
	$(VENV_PYTHON) -m pytest -n $(WORKERS) --dist loadfile

test-long: $(READY) broker spin chromium ## the tests that take minutes
	$(VENV_PYTHON) -m pytest -n $(WORKERS) --dist loadfile -m "long and not cuda" --timeout 3600

check: $(READY) ## lint, formatting, types
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy

model: $(READY) spin ## check the models of specs/models/ with SPIN; one JSON document
	@$(VENV_PYTHON) tests/support/check_models.py

bench: $(READY) broker ## cost against limits; figures also in bench/*.json
	@mkdir -p bench
	$(VENV)/bin/veilsum bench core --json bench/core.json
	$(VENV)/bin/veilsum bench rounds --scheme masked --parties 10 --dim 1000000 --bits 32 --json bench/masked-10.json
	$(VENV)/bin/veilsum bench rounds --scheme masked --parties 50 --dim 1000000 --bits 32 --drop 5 --json bench/masked-50.json
	$(VENV)/bin/veilsum bench rounds --scheme ampc --parties 10 --dim 1000000 --bits 64 --json bench/ampc-10.json
	$(VENV)/bin/veilsum bench rounds --scheme masked --parties 10 --dim 10000000 --bits 32 --json bench/masked-10m.json
	$(VENV)/bin/veilsum bench rounds --scheme masked --parties 250,500,1000 --dim 10000 --bits 32 --drop 10% \
	  --threat semi-honest --json bench/masked-1000.json
	$(VENV)/bin/veilsum bench perturbed --model resnet20 --batch 32 --loss mse --groups 1 --json bench/perturbed.json
	$(VENV)/bin/veilsum bench mqtt --size-mib 40 --json bench/mqtt.json
	$(VENV)/bin/veilsum bench launch --json bench/launch.json

docs: $(READY) broker ## regenerate what is generated in specs/
	$(VENV_PYTHON) -m veilsum.simulations.docs specs
	@for maker in tests/support/make_*.py; do echo "$$maker"; PYTHONPATH=. $(VENV_PYTHON) "$$maker" || exit 1; done

notebooks: $(READY) ## run the notebooks of specs/notebooks and keep what they show
	PYTHONPATH=. $(VENV_PYTHON) tests/support/notebooks.py

site: $(READY) ## the documentation as a site: build/site/index.html
	$(VENV_PYTHON) specs/site/build.py build/site

clean: ## remove everything make made
	rm -rf .venv .venv-3.* build dist bench *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage .broker
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

broker:
	@sh tests/support/provide_broker.sh

spin:
	@sh tests/support/provide_spin.sh

chromium:
	@sh tests/support/provide_chromium.sh

$(READY): pyproject.toml constraints.txt
	@if ! $(VENV_PYTHON) -c 'import pip, sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; then \
	  found=$$(sh tests/support/find_python.sh $(if $(PYTHON),'$(PYTHON)')) || { echo "$$found" >&2; exit 1; }; \
	  echo "setting up $(VENV) with Python $$found (once; a few minutes)"; \
	  "$${found#* }" -m venv --clear $(VENV) || exit 1; \
	fi
	@$(VENV_PYTHON) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,broker,site]'
	@touch $@
