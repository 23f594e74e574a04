# Everything runs from a private virtual environment that make builds by itself.
# Variables are given on the command line (make run DATA=...); what the shell or a home directory has changes nothing
# but how a registry of packages is reached.
PYTHON := python3
VENV   := .venv
BIN    := $(VENV)/bin
DATA   := ./data
KAFKA  := 127.0.0.1:9092
AMQP   := 127.0.0.1:5672
ADMIN  := 127.0.0.1:15672

unexport PYTHONDONTWRITEBYTECODE PYTHONHOME PYTHONINSPECT PYTHONOPTIMIZE PYTHONPATH PYTHONPLATLIBDIR PYTHONSAFEPATH PYTHONSTARTUP PYTHONUSERBASE
unexport PYTHONWARNINGS PYTEST_ADDOPTS PYTEST_PLUGINS PYTEST_DISABLE_PLUGIN_AUTOLOAD MYPYPATH MYPY_CACHE_DIR RUFF_CONFIG
unexport PIP_BREAK_SYSTEM_PACKAGES PIP_CONSTRAINT PIP_DRY_RUN PIP_EDITABLE PIP_IGNORE_INSTALLED PIP_NO_BINARY
unexport PIP_NO_BUILD_ISOLATION PIP_NO_DEPS PIP_ONLY_BINARY PIP_PRE PIP_PREFIX PIP_PYTHON PIP_REPORT PIP_REQUIREMENT
unexport PIP_REQUIRE_HASHES PIP_ROOT PIP_TARGET PIP_USER

# A change of one of these needs a new installation.
BUILT_FROM := pyproject.toml setup.py src/posthouse/records/_columns.c

.DEFAULT_GOAL := help
.PHONY: help run cluster check test test-databases mariadb lint types layers fast pytest frameworks test-java test-spark-versions explore torture torture-spark simulate test-long fuzz bench bench-compare bench-scrape bench-queues bench-hostile bench-scale bench-spark conformance as-rabbitmq demo codec clean bench-cluster bench-consistency bench-rocketmq postgres iproute rabbitmqadmin test-cluster torture-cluster torture-bank

help:            ## show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/.runtime: $(BUILT_FROM)
	@$(PYTHON) -c 'import sys; sys.exit("Posthouse needs Python 3.11 or newer; try make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@cp tools/pip.conf $(VENV)/pip.conf
	@echo "installing posthouse into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(BIN)/.dev: $(BUILT_FROM)
	@$(PYTHON) -c 'import sys; sys.exit("Posthouse needs Python 3.11 or newer; try make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@cp tools/pip.conf $(VENV)/pip.conf
	@echo "installing posthouse and its development tools into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $(BIN)/.runtime $@

$(BIN)/.fuzz: $(BIN)/.dev
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[fuzz]'
	@touch $@

$(BIN)/.demo: $(BUILT_FROM)
	@$(PYTHON) -c 'import sys; sys.exit("Posthouse needs Python 3.11 or newer; try make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@cp tools/pip.conf $(VENV)/pip.conf
	@echo "installing posthouse with Spark into $(VENV) (some 600 MB) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[demo]'
	@touch $(BIN)/.runtime $@

run: $(BIN)/.runtime  ## start the broker on $(KAFKA), $(AMQP) and $(ADMIN), data in $(DATA)
	@exec $(BIN)/posthouse serve --data $(DATA) --kafka $(KAFKA) --amqp $(AMQP) --admin $(ADMIN) --hints

demo: $(BIN)/.demo  ## broker, orders and a pipeline on Spark, for half a minute
	@$(BIN)/python -m tools.demo

cluster: $(BIN)/.dev  ## PostgreSQL, an S3 server and two brokers; kills one while a client goes on (ONCE=1 ends then)
	@$(BIN)/python -m tools.cluster $(if $(ONCE),--once)

test: lint types layers pytest  ## lint, types, layers and the whole test suite

check: lint types layers fast  ## lint, types, layers and a fast set of tests, in under three minutes

lint: $(BIN)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(BIN)/.dev
	$(BIN)/mypy

layers: $(BIN)/.dev
	$(BIN)/lint-imports

# Quix Streams wants a confluent-kafka that has no share consumers yet, so it has an environment of its own.
build/quix/.installed: Makefile
	@test -x build/quix/bin/python || $(PYTHON) -m venv build/quix
	@build/quix/bin/python -m pip install --quiet --disable-pip-version-check 'quixstreams>=3.28,<4'
	@touch $@

frameworks: $(BIN)/.dev build/quix/.installed  ## applications of FastStream, Faust, Quix Streams and others
	POSTHOUSE_FRAMEWORKS=1 $(BIN)/pytest tests/frameworks

# The fast set shows a broken produce, fetch, publish, consume, commit or recovery: codecs, records, the storage
# contract and recovery, every coordinator, queues, handlers, one real client of each protocol, and the commands.
# The models and the fuzzing take most of the time of the whole suite and run only there.
FAST := tests/records tests/storage tests/broker tests/protocols tests/client tests/testing tests/wire \
    tests/test_app.py tests/test_descriptors.py tests/test_docs.py tests/test_open_listeners.py \
    tests/clients/test_confluent_kafka.py tests/clients/test_groups_confluent.py \
    tests/clients/test_transactions_confluent.py tests/clients/amqp/test_publishing_pika.py \
    tests/clients/amqp/test_delivery_pika.py tests/clients/amqp/test_restart.py \
    tests/cli/test_cli_serve.py tests/cli/test_cli_topics.py tests/cli/test_cli_pipes.py
# Of those directories without the models, which have names of their own, and without the files that take more than two
# seconds, or show again with other bytes what a faster one shows.
MODELS := *_model.py *_stateful.py
SLOW := $(addprefix tests/broker/,routing/test_header_matching.py routing/test_routing_cost.py \
        routing/test_topic_matching.py schedule/test_periods.py schedule/test_schedule_memory.py \
        schedule/test_schedule_power_cut.py transactions/test_two_phase_shared.py) \
    $(addprefix tests/protocols/,admin/metrics/test_many_objects.py admin/test_crowded.py admin/test_events.py \
        admin/test_delayed_records.py admin/test_group_messages.py admin/test_half_checks.py \
        admin/test_openapi.py admin/test_record_stream.py \
        admin/test_rabbitmqadmin.py admin/test_scale.py amqp/codec/test_amqp_against_pamqp.py \
        amqp/codec/test_amqp_hostile_input.py \
        amqp/codec/test_amqp_tables.py amqp/mapping/test_amqp_properties.py amqp/test_back_pressure.py \
        amqp/test_permissions.py kafka/access/test_every_api.py kafka/codec/test_codec_against_kafka_python.py \
        kafka/codec/test_codec_against_kio.py kafka/codec/test_codec_generator.py \
        kafka/codec/test_codec_hostile_input.py kafka/test_many_topics.py \
        rocketmq/grpc/messages/test_grpc_messages_against_protobuf.py rocketmq/grpc/test_grpc_access.py \
        rocketmq/grpc/test_grpc_any_input.py rocketmq/grpc/test_grpc_logins.py rocketmq/grpc/test_grpc_quotas.py \
        rocketmq/test_remoting_any_input.py) \
    $(addprefix tests/storage/files/,test_compaction_crash.py test_compaction_power_cut.py test_damage.py \
        test_limits.py) \
    $(addprefix tests/storage/shared/,manifests/test_manifests_beside_upkeep.py test_merging.py test_merging_tiers.py test_reads_beside_upkeep.py \
        several/test_housekeeping_of_several.py test_upkeep_crashes.py)
fast: $(BIN)/.dev postgres rabbitmqadmin
	$(foreach each,$(filter-out $(wildcard $(SLOW)),$(SLOW)),$(error SLOW names $(each), which is not there))
	$(BIN)/pytest -q -n 2 $(MODELS:%='--ignore-glob=%') $(SLOW:%=--ignore=%) $(FAST)

# Tests of the shared storage run Debian's PostgreSQL. They are skipped where it cannot be installed.
HAS_POSTGRES := ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || command -v postgres >/dev/null
postgres:
	@$(HAS_POSTGRES) || if test "$$(id -u)" = 0 && command -v apt-get >/dev/null; then \
	    echo "installing PostgreSQL for the tests of the shared storage ..."; \
	    (apt-get -qq update; DEBIAN_FRONTEND=noninteractive apt-get -qq -y install postgresql) >/dev/null 2>&1 || true; fi
	@$(HAS_POSTGRES) || echo "tests of the shared storage are skipped: PostgreSQL is not installed (apt-get install postgresql)"

# RabbitMQ's own command line is one file of Debian's package, which needs nothing else of it. Its tests are skipped
# where it cannot be had.
HAS_RABBITMQADMIN := test -x build/rabbitmqadmin || command -v rabbitmqadmin >/dev/null
rabbitmqadmin:
	@$(HAS_RABBITMQADMIN) || if command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null; then \
	    echo "fetching rabbitmqadmin for the tests of the management API ..."; mkdir -p build/rabbitmq; \
	    (cd build/rabbitmq; apt-get -qq download rabbitmq-server || { apt-get -qq update && apt-get -qq download rabbitmq-server; }; \
	     dpkg-deb -x rabbitmq-server_*.deb . && cp usr/bin/rabbitmqadmin ..) >/dev/null 2>&1 || true; rm -rf build/rabbitmq; fi
	@$(HAS_RABBITMQADMIN) || echo "tests of rabbitmqadmin are skipped: it is not installed (apt-get install rabbitmq-server)"

# A real S3 server, for tests/s3.py. Tests of it are skipped without Go.
VERSITYGW := v1.8.0
build/versitygw: Makefile
	@! command -v go >/dev/null || { echo "building an S3 server for the tests ..."; \
	    GOBIN=$(CURDIR)/build go install github.com/versity/versitygw/cmd/versitygw@$(VERSITYGW) && touch $@; } || true

test-cluster: $(BIN)/.dev postgres iproute build/versitygw  ## the client and crash suites on PostgreSQL and an object store
	POSTHOUSE_CLUSTER=1 $(BIN)/pytest -n 2 --durations 15 tests/storage/shared tests/cluster tests/clients tests/crash \
	    tests/torture/cluster tests/torture/network tests/bench/test_cluster_scenarios.py tests/broker/queues/test_queue_shared_model.py \
	    tests/tools/test_cluster.py tests/cli/test_cli_storage.py tests/spark/segments

# Six workers for two cores: tests with Spark, with real clients and with faults wait most of the time.
pytest: $(BIN)/.dev postgres iproute rabbitmqadmin
	$(BIN)/pytest -n 6 --dist loadgroup --durations 40

# The suite of outbox and inbox on MariaDB, too.
HAS_MARIADB := test -x /usr/sbin/mariadbd
mariadb:
	@$(HAS_MARIADB) || if test "$$(id -u)" = 0 && command -v apt-get >/dev/null; then \
	    echo "installing MariaDB for the tests of outbox and inbox ..."; \
	    (apt-get -qq update; DEBIAN_FRONTEND=noninteractive apt-get -qq -y install mariadb-server) >/dev/null 2>&1 || true; fi
	@$(HAS_MARIADB) || echo "tests with MariaDB are skipped: it is not installed (apt-get install mariadb-server)"

RELAY_KILLS ?= 60
test-databases: $(BIN)/.dev postgres mariadb  ## outbox and inbox on PostgreSQL, MariaDB and SQLite, with RELAY_KILLS (60)
	POSTHOUSE_DATABASES=1 POSTHOUSE_KILLS=$(RELAY_KILLS) $(BIN)/pytest -n 2 tests/consistency

test-long: $(BIN)/.dev postgres iproute  ## what takes too long for make test: Spark on sessions and clusters of all kinds, more kills
	POSTHOUSE_LONG=1 $(BIN)/pytest -n 2 --dist loadgroup --durations 15 -m long

test-java: $(BIN)/.dev postgres  ## Kafka Streams and Connect, RocketMQ's clients, Java clients of two brokers, a relay to a real Kafka; fetches 300 MB the first time
	POSTHOUSE_JAVA=1 $(BIN)/pytest tests/java tests/clients/rocketmq tests/consistency/test_relay_to_kafka.py \
		tests/cluster/test_survival.py \
		tests/cluster/test_racks.py

SPARK_TESTS :=
test-spark-versions: $(BIN)/.dev  ## the Spark tests on every kind of session, with the oldest and the newest PySpark
	POSTHOUSE_LONG=1 $(BIN)/python -m tests.spark $(SPARK_TESTS)

explore: ROUNDS ?= 20
explore: $(BIN)/.dev  ## the models and properties with new examples, ROUNDS times (20)
	for round in $$(seq $(ROUNDS)); do $(BIN)/pytest -q -n 2 --hypothesis-profile new \
	    tests/storage/test_storage_model.py tests/storage/test_compaction_model.py \
	    tests/storage/shared/test_shared_storage_model.py tests/storage/shared/test_against_memory.py \
	    tests/broker/filters tests/broker/groups tests/broker/transactions tests/broker/queues tests/broker/routing \
	    tests/broker/schedule tests/broker/subscriptions tests/broker/key_index tests/records \
	    tests/protocols/kafka/codec tests/protocols/amqp/codec tests/protocols/amqp/mapping \
	    tests/protocols/rocketmq/codec tests/protocols/rocketmq/grpc/messages || exit 1; done

torture: MINUTES ?= 10
KINDS ?=
WORKLOAD ?=
SEED ?= 1
torture: $(BIN)/.dev  ## faults of all KINDS for MINUTES (10), or ROUNDS=kill:1000,...: docs/reliability.md
	$(BIN)/python -m tests.torture --minutes $(MINUTES) --kinds "$(KINDS)" --rounds "$(ROUNDS)" \
	    $(if $(WORKLOAD),--workload $(WORKLOAD)) --seed $(SEED) --report docs/reliability.md

# Hosts in network namespaces need ip and tc. Their kinds are left out where namespaces cannot be made.
HAS_IPROUTE := command -v ip >/dev/null && command -v tc >/dev/null
iproute:
	@$(HAS_IPROUTE) || if test "$$(id -u)" = 0 && command -v apt-get >/dev/null; then \
	    echo "installing iproute2 for faults of a network ..."; \
	    (apt-get -qq update; DEBIAN_FRONTEND=noninteractive apt-get -qq -y install iproute2) >/dev/null 2>&1 || true; fi

torture-cluster: ROUNDS ?= 170
torture-cluster: $(BIN)/.dev postgres iproute build/versitygw  ## brokers on PostgreSQL with a standby: ROUNDS (170) of all faults, or net-cut:50,...
	$(BIN)/python -m tests.torture --cluster --kinds "$(KINDS)" --rounds "$(ROUNDS)" \
	    --seed $(SEED) --report docs/reliability.md

torture-bank: ROUNDS ?= 500
torture-bank: $(BIN)/.dev postgres  ## examples/bank with everything killed, ROUNDS times (500): money is conserved
	$(BIN)/python -m tests.torture.bank --rounds $(ROUNDS) --seed $(SEED) --report docs/reliability.md

KILLS ?= 25
torture-spark: $(BIN)/.dev  ## Spark, archive and broker killed KILLS times (25): every order comes out once
	POSTHOUSE_QUEUE_KILLS=$(KILLS) $(BIN)/pytest tests/crash/test_queue_kill.py
	POSTHOUSE_LONG=1 POSTHOUSE_KILLS=$(KILLS) POSTHOUSE_SEED=$(SEED) $(BIN)/pytest -s tests/spark/exactly_once tests/spark/test_cluster.py

SEEDS ?= 2000
JOBS ?= 2
simulate: $(BIN)/.dev  ## SEEDS (2000) lives of a broker, and of three on one database, in simulated time, from SEED (1) on
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) --seed $(SEED) --jobs $(JOBS)
	$(BIN)/python -m tests.simulation --cluster --seeds $(SEEDS) --seed $(SEED) --jobs $(JOBS)

TARGET ?=
fuzz: MINUTES ?= 2
fuzz: $(BIN)/.fuzz  ## the decoders, guided by coverage, MINUTES (2) each; TARGET names some of them
	$(BIN)/python -m tests.fuzz $(TARGET) --minutes $(MINUTES)

bench: $(BIN)/.dev  ## measure, print ratios, rewrite docs/benchmarks.md
	$(BIN)/python -m bench
	@$(MAKE) bench-queues

BASE ?= HEAD~1
bench-compare: $(BIN)/.dev  ## this tree beside the commit BASE (the one before), in turn on one machine
	$(BIN)/python -m bench.compare $(BASE)

bench-scrape: $(BIN)/.dev  ## the same broker with and without a scrape of its metrics every second
	$(BIN)/python -m bench.scraping

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

QUICK ?=
BENCH_ROCKETMQ ?=
bench-rocketmq: $(BIN)/.dev iproute  ## RocketMQ clients, beside the real RocketMQ, docs/benchmarks-rocketmq.md (QUICK=1 is a trial)
	$(BIN)/python -m bench.rocketmq $(if $(QUICK),--quick) $(BENCH_ROCKETMQ)

$(BIN)/.bench: $(BIN)/.dev
	@echo "installing other relays of an outbox into $(VENV) (some 200 MB) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	@touch $@

# A benchmark of webhooks is another line of this target.
BENCH_CONSISTENCY ?=
bench-consistency: $(BIN)/.bench postgres  ## the outbox relay beside others, docs/benchmarks-consistency.md
	$(BIN)/python -m bench.consistency $(BENCH_CONSISTENCY)

BENCH_CLUSTER ?=
bench-cluster: $(BIN)/.dev postgres build/versitygw  ## the shared storage beside the local engine, docs/benchmarks-cluster.md
	$(BIN)/python -m bench.cluster $(BENCH_CLUSTER)

conformance: $(BIN)/.dev  ## the test suites of Kafka and AMQP clients and of RocketMQ against this broker, and RocketMQ beside it
	$(BIN)/python -m tools.conformance $(CONFORMANCE)

as-rabbitmq: $(BIN)/.dev  ## the tests that must hold of RabbitMQ, too, against RabbitMQ (if it is installed)
	$(BIN)/python -m tools.as_rabbitmq

codec: $(BIN)/.dev  ## regenerate the Kafka codec from kio's schemas
	$(BIN)/python -m tools.kafka_codec

clean:           ## remove the virtual environment and caches
	rm -rf $(VENV) build src/posthouse/records/*.so .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
