"""What /metrics says after traffic that is known."""

from pathlib import Path

import aio_pika
import httpx
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as ClientTopic

from posthouse.broker.appending import Produced
from posthouse.broker.queues.counters import QueueCounters
from posthouse.broker.queues.definition import QueueDefinition
from posthouse.broker.topics import NewTopic
from posthouse.broker.traffic import TopicTraffic
from posthouse.model.ids import GroupId
from posthouse.model.topics import Topic
from posthouse.protocols.admin.metrics import queues, topics
from posthouse.protocols.admin.metrics.collector import FAMILIES
from posthouse.records.builder import BatchBuilder
from posthouse.testing import AsyncBroker
from tests.broker.queues.lazy_rig import until
from tests.protocols.admin.metrics.scraping import Scrape, scrape
from tests.protocols.kafka.handlers import share_wire
from tests.protocols.kafka.wire import Wire


async def of_kafka(broker: AsyncBroker) -> None:
    """Ten records to a topic; a group reads four of them and commits that."""
    await broker.app.broker.create_topics([NewTopic(name="orders", partitions=1)])
    producer = AIOKafkaProducer(bootstrap_servers=broker.kafka, enable_idempotence=True)
    await producer.start()
    for number in range(10):
        await producer.send_and_wait("orders", b"%d" % number)
    await producer.stop()
    consumer = AIOKafkaConsumer(
        "orders",
        bootstrap_servers=broker.kafka,
        group_id="billing",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    for _ in range(4):
        await consumer.getone()
    await consumer.commit()
    await consumer.stop()


async def test_numbers_of_kafka_clients(tmp_path: Path) -> None:
    async with AsyncBroker(data=tmp_path) as broker:
        await of_kafka(broker)
        found = await scrape(broker)
        assert found.value("posthouse_topic_records_in_total", topic="orders") == 10
        assert found.value("posthouse_topic_records_out_total", topic="orders") >= 10
        assert found.value("posthouse_topic_bytes_in_total", topic="orders") > 10 * 60
        assert found.value("posthouse_partition_end_offset", topic="orders", partition="0") == 10
        assert found.value("posthouse_partition_start_offset", topic="orders", partition="0") == 0
        assert found.value("posthouse_topic_log_records", topic="orders") == 10
        [topic] = [each for each in broker.app.broker.topics if each.name == "orders"]
        size = broker.app.broker.size(topic, 0)
        assert found.value("posthouse_partition_log_bytes", topic="orders", partition="0") == size
        assert found.value("posthouse_group_lag_records", group="billing", topic="orders") == 6
        assert found.value("posthouse_group_members", group="billing") == 0
        produce = {"protocol": "kafka", "api": "Produce"}
        assert found.value("posthouse_requests_total", **produce) == 10
        assert found.value("posthouse_request_errors_total", **produce) == 0
        assert found.value("posthouse_request_duration_seconds_count", **produce) == 10
        assert found.value("posthouse_request_duration_seconds_bucket", **produce, le="+Inf") == 10
        assert found.value("posthouse_request_duration_seconds_sum", **produce) > 0
        assert found.value("posthouse_requests_total", protocol="kafka", api="OffsetCommit") == 1
        assert found.value("posthouse_journal_sync_duration_seconds_count") >= 10
        assert found.value("posthouse_journal_group_commits_count") >= 10
        assert found.value("posthouse_journal_written_bytes_total") > 600
        assert found.value("posthouse_connections_accepted_total") >= 3
        assert found.value("posthouse_storage_writable") == 1
        assert found.value("posthouse_disk_free_bytes") > 0


async def test_numbers_of_amqp_clients() -> None:
    async with AsyncBroker() as broker:
        connection = await aio_pika.connect(f"amqp://guest:guest@{broker.amqp}/")
        async with connection:
            channel = await connection.channel()
            queue = await channel.declare_queue("mails", durable=True)
            for number in range(5):
                await channel.default_exchange.publish(aio_pika.Message(b"%d" % number), "mails")
            first = await queue.get()
            await first.ack()
            second = await queue.get()
            await second.nack(requeue=True)
            await (await queue.get()).ack()
            await queue.get()
            found = await scrape(broker)
            labels = {"namespace": "/", "queue": "mails"}
            expected = {
                "published": 5,
                "got": 4,
                "delivered": 0,
                "acked": 2,
                "redelivered": 1,
                "dead_lettered": 0,
                "expired": 0,
            }
            for name, count in expected.items():
                assert found.value(f"posthouse_queue_{name}_messages_total", **labels) == count, name
            assert found.value("posthouse_queue_ready_messages", **labels) == 2
            assert found.value("posthouse_queue_unacked_messages", **labels) == 1
            assert found.value("posthouse_queue_consumers", **labels) == 0
            assert 0 <= found.value("posthouse_queue_oldest_message_age_seconds", **labels) < 60
            publish = {"protocol": "amqp", "api": "basic.publish"}
            assert found.value("posthouse_requests_total", **publish) == 5
            assert found.value("posthouse_request_duration_seconds_count", **publish) == 5
            assert found.value("posthouse_requests_total", protocol="amqp", api="basic.get") == 4
            assert found.value("posthouse_requests_total", protocol="amqp", api="basic.ack") == 2
            for api in ("queue.declare", "connection.open", "connection.startok", "connection.tuneok"):
                assert found.value("posthouse_requests_total", protocol="amqp", api=api) == 1, api
            assert found.value("posthouse_connections", listener="amqp") == 1
            assert found.value("posthouse_queues") == 1


async def test_deliveries_count_for_queues_and_for_the_api() -> None:
    async with AsyncBroker() as broker:
        connection = await aio_pika.connect(f"amqp://guest:guest@{broker.amqp}/")
        async with connection:
            channel = await connection.channel()
            queue = await channel.declare_queue("mails")
            await channel.default_exchange.publish(aio_pika.Message(b"hello"), "mails")
            async with queue.iterator() as messages:
                async for message in messages:
                    await message.ack()
                    break
            counters = broker.app.broker.namespaces.get("/").queues["mails"].counters
            await until(lambda: counters.acked == 1)
            found = await scrape(broker)
            assert found.value("posthouse_requests_total", protocol="amqp", api="basic.deliver") == 1
            labels = {"namespace": "/", "queue": "mails"}
            assert found.value("posthouse_queue_delivered_messages_total", **labels) == 1


async def test_errors_of_each_protocol() -> None:
    async with AsyncBroker() as broker:
        connection = await aio_pika.connect(f"amqp://guest:guest@{broker.amqp}/")
        async with connection:
            channel = await connection.channel()
            with pytest.raises(aio_pika.exceptions.ChannelNotFoundEntity):
                await channel.declare_queue("nothing", passive=True)
        async with httpx.AsyncClient(base_url=f"http://{broker.admin}") as http:
            await http.get("/v1/topics/nothing")
            await http.get("/no/such/path")
        found = await scrape(broker)
        name = "posthouse_request_errors_total"
        assert found.value(name, protocol="amqp", api="queue.declare") == 1
        assert found.value("posthouse_requests_total", protocol="amqp", api="queue.declare") == 1
        assert found.value(name, protocol="http", api="GET /v1/topics/{topic}") == 1
        assert found.value(name, protocol="http", api="unknown") == 1


async def test_what_amqp_refuses_at_once_is_a_request_too() -> None:
    async with AsyncBroker() as broker:
        connection = await aio_pika.connect(f"amqp://guest:guest@{broker.amqp}/")
        async with connection:
            channel = await connection.channel(publisher_confirms=False)
            exchange = await channel.get_exchange("nothing", ensure=False)
            with pytest.raises(aio_pika.exceptions.AMQPError):
                await exchange.publish(aio_pika.Message(b"x"), "q")
                await channel.declare_queue("q")
        found = await scrape(broker)
        labels = {"protocol": "amqp", "api": "basic.publish"}
        assert found.value("posthouse_request_errors_total", **labels) == 1
        assert found.value("posthouse_requests_total", **labels) == 1


async def test_errors_of_kafka_clients_in_parts_of_responses() -> None:
    async with AsyncBroker() as broker:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.kafka)
        await admin.start()
        for _ in range(2):  # the second time it is there
            await admin.create_topics([ClientTopic("orders", 1, 1)])
        await admin.close()
        found = await scrape(broker)
        create = {"protocol": "kafka", "api": "CreateTopics"}
        assert found.value("posthouse_requests_total", **create) == 2
        assert found.value("posthouse_request_errors_total", **create) == 1


async def test_errors_of_share_fetches_and_acknowledgements() -> None:
    """Also acknowledgements in a fetch, which have an error code of their own."""
    async with AsyncBroker() as broker, Wire(broker.kafka) as wire:
        member = await share_wire.joined(wire)
        await member.fetch(0)
        not_leased = {0: [(7, 7, [1])]}
        [got] = (await member.fetch(said=not_leased)).values()
        assert (got.data.error_code, got.data.acknowledge_error_code != 0) == (0, True)
        assert (await member.acknowledge(not_leased))[0] != 0
        found = await scrape(broker)
        for api in ("ShareFetch", "ShareAcknowledge"):
            assert found.value("posthouse_request_errors_total", protocol="kafka", api=api) == 1


async def test_a_scrape_creates_no_counters_of_traffic() -> None:
    async with AsyncBroker() as broker:
        await broker.app.broker.create_topics([NewTopic(name="orders", partitions=1)])
        found = await scrape(broker)
        assert found.value("posthouse_topic_records_in_total", topic="orders") == 0
        assert "orders" not in broker.app.broker.traffic


async def test_transactions_and_scheduled_messages() -> None:
    async with AsyncBroker() as broker:
        await broker.app.broker.create_topics([NewTopic(name="orders", partitions=1)])
        producer = AIOKafkaProducer(bootstrap_servers=broker.kafka, transactional_id="shop")
        await producer.start()
        for ends in (producer.commit_transaction, producer.abort_transaction):
            await producer.begin_transaction()
            await producer.send_and_wait("orders", b"one")
            await ends()
        await producer.begin_transaction()
        await producer.send_and_wait("orders", b"one")
        found = await scrape(broker)
        await producer.abort_transaction()
        await producer.stop()
        assert found.value("posthouse_transactions_committed_total") == 1
        assert found.value("posthouse_transactions_aborted_total") == 1
        assert found.value("posthouse_transactions_open") == 1
        assert found.value("posthouse_scheduled_messages") == 0


async def test_members_and_lag_of_a_share_group() -> None:
    async with AsyncBroker() as broker, Wire(broker.kafka) as wire:
        [topic] = await broker.app.broker.create_topics([NewTopic(name="t", partitions=1)])
        assert isinstance(topic, Topic)
        await share_wire.beat(wire, "m")
        await broker.app.broker.subscriptions.move(GroupId("g"), {topic.partition(0): 0})
        builder = BatchBuilder()
        builder.add(None, b"value", timestamp=broker.app.broker.now_ms())
        batch = memoryview(builder.build())
        await broker.app.broker.append([Produced(topic, 0, batch)]).wait()
        found = await scrape(broker)
        assert found.value("posthouse_group_members", group="g") == 1
        assert found.value("posthouse_group_lag_records", group="g", topic="t") == 1
        assert found.value("posthouse_groups") == 1
        async with httpx.AsyncClient(base_url=f"http://{broker.admin}") as http:
            assert (await http.get("/v1/overview")).json()["groups"] == 1


async def test_every_metric_is_declared_with_its_kind() -> None:
    async with AsyncBroker() as broker:
        await of_kafka(broker)
        found = await scrape(broker)
        declared = {family.name: str(family.kind) for family in FAMILIES}
        assert len(declared) == len(FAMILIES)
        assert found.kinds.items() <= declared.items()
        for name, kind in declared.items():
            assert (kind == "counter") == name.endswith("_total"), name


def test_every_counter_of_queues_and_topics_is_shown() -> None:
    assert set(queues.COUNTERS) == set(QueueCounters.__slots__)
    assert set(topics.TRAFFIC) == set(TopicTraffic.__slots__)


async def test_publishes_in_transactions_count() -> None:
    async with AsyncBroker() as broker:
        connection = await aio_pika.connect(f"amqp://guest:guest@{broker.amqp}/")
        async with connection:
            channel = await connection.channel(publisher_confirms=False)
            await channel.declare_queue("mails")
            async with channel.transaction():
                await channel.default_exchange.publish(aio_pika.Message(b"1"), "mails")
        found = await scrape(broker)
        assert found.value("posthouse_requests_total", protocol="amqp", api="basic.publish") == 1
        labels = {"namespace": "/", "queue": "mails"}
        assert found.value("posthouse_queue_published_messages_total", **labels) == 1


async def test_counters_never_fall() -> None:
    async with AsyncBroker() as broker:
        before = await scrape(broker)
        await of_kafka(broker)
        for _ in range(3):
            after = await scrape(broker)
            assert_no_counter_fell(before, after)
            before = after


def assert_no_counter_fell(before: Scrape, after: Scrape) -> None:
    for (name, labels), value in before.values.items():
        if name.endswith(("_total", "_bucket", "_count")):
            assert after.values.get((name, labels), value) >= value, (name, labels)


async def test_names_with_quotes_and_backslashes() -> None:
    async with AsyncBroker() as broker:
        name = 'a "quoted\\ name\nof two lines'
        namespace = broker.app.broker.namespaces.get("/")
        await namespace.declare_queue(QueueDefinition(name=name), object())
        found = await scrape(broker)
        assert found.value("posthouse_queue_ready_messages", namespace="/", queue=name) == 0


async def test_a_login_is_needed_where_there_are_users() -> None:
    async with AsyncBroker(users={"admin": "secret", "ann": "password"}) as broker:
        async with httpx.AsyncClient(base_url=f"http://{broker.admin}") as http:
            assert (await http.get("/metrics")).status_code == 401
            assert (await http.get("/metrics", auth=("ann", "password"))).status_code == 403
            assert (await http.get("/metrics", auth=("ann", "wrong"))).status_code == 401
        found = await scrape(broker, ("admin", "secret"))
        assert found.value("posthouse_login_failures_total", protocol="http") == 1
        assert found.value("posthouse_logins_total", protocol="http") >= 2


async def test_process_and_event_loop() -> None:
    async with AsyncBroker() as broker:
        delay = broker.app._loop_delay
        await until(lambda: delay.seconds.count > 0)
        found = await scrape(broker)
        assert found.value("posthouse_event_loop_delay_seconds_count") > 0
        assert found.value("process_resident_memory_bytes") > 0
        assert len(found.labels("posthouse_info", "version")) == 1
