# Everything runs from a private virtual environment that make builds by itself.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
DATA   ?= ./data
KAFKA  ?= 127.0.0.1:9092
AMQP   ?= 127.0.0.1:5672

# A change of one of these needs a new installation.
BUILT_FROM := pyproject.toml setup.py src/posthouse/records/_columns.c

.DEFAULT_GOAL := help
.PHONY: help run test lint types layers pytest explore torture torture-spark simulate fuzz bench bench-queues bench-hostile bench-scale bench-spark conformance demo codec clean

help:            ## show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/.runtime: $(BUILT_FROM)
	@$(PYTHON) -c 'import sys; sys.exit("Posthouse needs Python 3.11 or newer; try make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing posthouse into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(BIN)/.dev: $(BUILT_FROM)
	@$(PYTHON) -c 'import sys; sys.exit("Posthouse needs Python 3.11 or newer; try make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing posthouse and its development tools into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $(BIN)/.runtime $@

$(BIN)/.fuzz: $(BIN)/.dev
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[fuzz]'
	@touch $@

$(BIN)/.demo: $(BUILT_FROM)
	@$(PYTHON) -c 'import sys; sys.exit("Posthouse needs Python 3.11 or newer; try make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing posthouse with Spark into $(VENV) (some 600 MB) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[demo]'
	@touch $(BIN)/.runtime $@

run: $(BIN)/.runtime  ## start the broker on $(KAFKA) and $(AMQP), data in $(DATA)
	@exec $(BIN)/posthouse serve --data $(DATA) --kafka $(KAFKA) --amqp $(AMQP) --hints

demo: $(BIN)/.demo  ## broker, orders and a pipeline on Spark, for half a minute
	@$(BIN)/python -m tools.demo

test: lint types layers pytest  ## lint, types, layers and the whole test suite

lint: $(BIN)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(BIN)/.dev
	$(BIN)/mypy

layers: $(BIN)/.dev
	$(BIN)/lint-imports

pytest: $(BIN)/.dev
	$(BIN)/pytest -n 2 --dist loadgroup

explore: ROUNDS ?= 20
explore: $(BIN)/.dev  ## the models and properties with new examples, ROUNDS times (20)
	for round in $$(seq $(ROUNDS)); do $(BIN)/pytest -q -n 2 --hypothesis-profile new \
	    tests/storage/test_storage_model.py tests/storage/test_compaction_model.py \
	    tests/broker/groups tests/broker/transactions tests/broker/queues tests/broker/routing \
	    tests/broker/schedule tests/broker/shares tests/records || exit 1; done

torture: MINUTES ?= 10
KINDS ?=
SEED ?= 1
torture: $(BIN)/.dev  ## faults of all KINDS for MINUTES (10), or ROUNDS=kill:1000,...: docs/reliability.md
	$(BIN)/python -m tests.torture --minutes $(MINUTES) --kinds "$(KINDS)" --rounds "$(ROUNDS)" \
	    --seed $(SEED) --report docs/reliability.md

KILLS ?= 25
torture-spark: $(BIN)/.dev  ## Spark, archive and broker killed KILLS times (25): every order comes out once
	POSTHOUSE_QUEUE_KILLS=$(KILLS) $(BIN)/pytest tests/crash/test_queue_kill.py
	POSTHOUSE_KILLS=$(KILLS) POSTHOUSE_SEED=$(SEED) $(BIN)/pytest -s tests/spark/exactly_once

SEEDS ?= 2000
JOBS ?= 2
simulate: $(BIN)/.dev  ## SEEDS (2000) lives of a broker on simulated time, disk and network, from SEED (1) on
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) --seed $(SEED) --jobs $(JOBS)

TARGET ?=
fuzz: MINUTES ?= 2
fuzz: $(BIN)/.fuzz  ## the decoders, guided by coverage, MINUTES (2) each; TARGET names some of them
	$(BIN)/python -m tests.fuzz $(TARGET) --minutes $(MINUTES)

bench: $(BIN)/.dev  ## measure, print ratios, rewrite docs/benchmarks.md
	$(BIN)/python -m bench
	@$(MAKE) bench-queues

BENCH_QUEUES ?=
bench-queues: $(BIN)/.dev  ## queues beside RabbitMQ and Redis, docs/benchmarks-queues.md
	$(BIN)/python -m bench.queues $(BENCH_QUEUES)

ATTACK ?=
bench-hostile: $(BIN)/.dev  ## a client beside each attack, or those that ATTACK names part of; docs/security.md
	$(BIN)/python -m tests.hostile.pressure $(ATTACK)

BENCH_SCALE ?=
bench-scale: $(BIN)/.dev  ## very many connections, topics, records; overload; docs/benchmarks-scale.md
	$(BIN)/python -m bench.scale $(BENCH_SCALE)

BENCH_SPARK ?= --connector 4.0.0
bench-spark: $(BIN)/.dev  ## the same for the Spark side, docs/benchmarks-spark.md
	$(BIN)/python -m bench.spark $(BENCH_SPARK)

conformance: $(BIN)/.dev  ## the test suites of Kafka and AMQP clients against this broker
	$(BIN)/python -m tools.conformance $(CONFORMANCE)

codec: $(BIN)/.dev  ## regenerate the Kafka codec from kio's schemas
	$(BIN)/python -m tools.kafka_codec

clean:           ## remove the virtual environment and caches
	rm -rf $(VENV) build src/posthouse/records/*.so .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
