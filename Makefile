PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
RUN := $(BIN)/python -m medimg_eval
DEMO ?= runs/demo
VIEWER := medimg_eval/results/report/viewer

# Tests start many processes. Where nothing compiled may be kept, each would compile torch again, for seconds; so it is
# kept, away from the checkout.
unexport PYTHONDONTWRITEBYTECODE
test checks collection pytest docs: export PYTHONPYCACHEPREFIX = $(abspath $(VENV))/compiled

.PHONY: help demo test long chaos gpu checks lint types contracts docs links collection pytest picture architecture viewer wheel clean

help:
	@echo "make demo   install into $(VENV), fit a small U-Net, test it beside a Gaussian mixture, print the table, draw a figure"
	@echo "make test   install with the development tools, then lint, types, import contracts, docs, tests"
	@echo "make long   run every block of the README and of docs/ from a wheel in a new environment, about an hour"
	@echo "make chaos  kill each kind of process at random moments over hundreds of runs, whose scores must be those of quiet ones"
	@echo "make gpu    measure what is worth it on a GPU, in 8 minutes; at toy size where there is none"
	@echo "make viewer  fetch the NiiVue viewer of volumes with npm, for reports made from here and for wheels built from here"
	@echo "make wheel   build the wheel into dist/, with the viewer of volumes in it, so that who installs it needs no npm"
	@echo "make docs    build the site, docs/_build/html/index.html: pages, catalogue, reference; its notebooks are executed"
	@echo "make links   ask the network whether links of the site to elsewhere are still right"
	@echo "make clean  remove what was built (not the runs)"

# What is imported is compiled when it is; compiling all of torch first takes a minute.
$(VENV)/.base: pyproject.toml setup.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -e .
	@touch $@

$(VENV)/.dev: pyproject.toml setup.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -e ".[dev]"
	@touch $@ $(VENV)/.base

demo: $(VENV)/.base
	$(RUN) fit task=brain_tissue model=unet_small run=$(DEMO)/unet
	$(RUN) test task=brain_tissue model=unet_small model.checkpoint=$(DEMO)/unet runs=$(DEMO)
	$(RUN) test task=brain_tissue model=gaussian_mixture runs=$(DEMO)
	$(RUN) table runs=$(DEMO) out=$(DEMO)/table
	$(RUN) figure kind=forest metric=dice by=label runs=$(DEMO) out=$(DEMO)/figures

test: checks pytest

# Needs Python alone, and the network to install.
long:
	$(PYTHON) -m tests.first_hour --out docs/develop/first_hour.json
	$(MAKE) --no-print-directory chaos

chaos: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.chaos --storms 60 --out benchmarks/results/chaos.json

gpu: $(VENV)/.dev
	$(BIN)/python benchmarks/gpu.py --out benchmarks/results/gpu.json

# The types take one core for a minute. On the other, all that tests import is compiled meanwhile.
checks: $(VENV)/.dev
	$(MAKE) --no-print-directory -j 2 types contracts lint collection docs

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

contracts: $(VENV)/.dev
	$(BIN)/lint-imports

docs: $(VENV)/.dev
	$(BIN)/python -m sphinx -W --keep-going -q docs docs/_build/html
	$(BIN)/python docs/check_links.py docs/_build/html

links: $(VENV)/.dev
	$(BIN)/python -m sphinx -b linkcheck -q docs docs/_build/linkcheck

collection: $(VENV)/.dev
	$(BIN)/pytest --collect-only -q > /dev/null || $(BIN)/pytest --collect-only -q

pytest: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal --durations 10  # two processes of two threads each would fight over two cores

picture: $(VENV)/.base
	$(BIN)/python docs/_static/picture.py $(DEMO) docs/_static/table.svg
	cp $(DEMO)/figures/forest-dice-label.png docs/_static/figure.png

architecture: $(VENV)/.dev
	$(BIN)/python docs/architecture.py docs/develop/architecture.svg

# The versions and checksums are those of package-lock.json. What the file is put together of keeps its licences beside it.
viewer: $(VIEWER)/niivue.js

$(VIEWER)/niivue.js: $(VIEWER)/package.json $(VIEWER)/package-lock.json
	cd $(VIEWER) && npm ci --ignore-scripts --omit=optional --no-audit --no-fund
	cd $(VIEWER) && { cat NIIVUE-LICENCE.txt; find node_modules -iname 'licen[cs]e*' | sort | while read -r file; do \
		printf '\n\n%s\n\n' "$$file"; cat "$$file"; done; } > niivue-licences.txt
	cp $(VIEWER)/node_modules/@niivue/niivue/dist/niivue.umd.js $@
	rm -rf $(VIEWER)/node_modules

# A wheel without the viewer would draw slices where the README promises volumes: it is no release.
wheel: viewer
	rm -rf build dist/medimg_eval-*.whl
	$(PYTHON) -m pip wheel --quiet --no-deps --wheel-dir dist .
	@for file in niivue.js niivue-licences.txt; do \
		$(PYTHON) -m zipfile -l dist/medimg_eval-*.whl | grep "results/report/viewer/$$file" > /dev/null || \
		{ echo "dist/ holds a wheel without $$file; run make viewer, then make wheel"; exit 1; }; done

clean:
	rm -rf build dist docs/_build docs/api docs/catalogue *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
