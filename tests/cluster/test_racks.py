"""Three brokers in two racks: consumers read from a broker of their rack, as long as there is one."""

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from posthouse.protocols.kafka.codec.generated import alter_partition_reassignments as reassignments
from posthouse.protocols.kafka.codec.generated.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from posthouse.protocols.kafka.codec.generated.fetch import FetchResponse
from posthouse.protocols.kafka.codec.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from posthouse.protocols.kafka.config_resources import ResourceType
from posthouse.protocols.kafka.errors import ErrorCode
from tests.cluster.nodes import CALM, node, until
from tests.cluster.rack_readers import (
    PARTITIONS,
    PATIENCE_SECONDS,
    Aiokafka,
    Java,
    KafkaPython,
    Librdkafka,
    RackReader,
    read,
)
from tests.cluster.test_survival import java_clients, served, wait_for_brokers
from tests.postgres import PostgresServer, new_database
from tests.protocols.kafka.wire import Wire, fetch_request
from tests.served import ServedBroker

pytestmark = [pytest.mark.xdist_group("survival"), pytest.mark.timeout(400)]

_RACKS = {"one": "east", "two": "west", "three": "west"}
_SENT = re.compile(r'^posthouse_topic_records_out_total\{topic="([^"]+)"\} (\S+)$', re.MULTILINE)

_Maker = Callable[[str, str, str], RackReader]
_READERS: Mapping[str, _Maker] = {
    "librdkafka": Librdkafka,
    "aiokafka": Aiokafka,
    "kafka-python": KafkaPython,
}


@dataclass(slots=True)
class _Racks:
    brokers: dict[str, ServedBroker]

    @property
    def bootstrap(self) -> str:
        return ",".join(each.bootstrap for each in self.brokers.values())

    def kill(self, name: str) -> None:
        self.brokers.pop(name).kill()

    def produce(self, topic: str, values: set[bytes]) -> None:
        """Some to each partition."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True})
        for number, value in enumerate(sorted(values)):
            producer.produce(topic, value, partition=number % PARTITIONS)
        assert producer.flush(PATIENCE_SECONDS) == 0

    def sent(self, topic: str) -> dict[str, int]:
        """The records that each broker has sent to consumers."""
        found = {}
        for name, broker in self.brokers.items():
            metrics = httpx.get(f"http://{broker.admin}/metrics", timeout=PATIENCE_SECONDS).text
            found[name] = int(float(dict(_SENT.findall(metrics)).get(topic, 0)))
        return found


@pytest.fixture(scope="module")
def racks(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Racks]:
    """The last test kills two of the brokers."""
    place = tmp_path_factory.mktemp("racks")
    with ExitStack() as stack:
        url = stack.enter_context(new_database(postgres))
        brokers = {}
        for name, rack in _RACKS.items():
            brokers[name] = served(place, url, name, rack=rack)
            stack.callback(brokers[name].kill)
        for each in brokers.values():
            wait_for_brokers(each.bootstrap, len(brokers))
        asyncio.run(_until_sent_to(brokers["one"], 2))
        yield _Racks(brokers)


async def _until_sent_to(broker: ServedBroker, count: int) -> None:
    """Until it sends consumers of the other rack to so many brokers. Each connection is told only once."""
    async with asyncio.timeout(PATIENCE_SECONDS), Wire(broker.bootstrap) as wire:
        topic = await _topic_id(wire, "probe")
    request = fetch_request(*((topic, partition, 0) for partition in range(PARTITIONS)))
    request.rack_id = "west"
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            async with Wire(broker.bootstrap) as wire:
                answer = await wire.ask(request, FetchResponse)
            told = {each.partitions[0].preferred_read_replica for each in answer.responses}
            if len(told) == count and -1 not in told:
                return
            await asyncio.sleep(0.1)


async def _topic_id(wire: Wire, name: str) -> bytes:
    """Of a topic that is created if it does not exist."""
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    [found] = (await wire.ask(asked, MetadataResponse)).topics
    return await wire.create_topic(name, PARTITIONS) if found.error_code else found.topic_id


def _values(phase: str) -> set[bytes]:
    return {f"{phase}-{number}".encode() for number in range(4 * PARTITIONS)}


@contextmanager
def _reading(racks: _Racks, makers: Mapping[str, _Maker], rack: str) -> Iterator[dict[str, RackReader]]:
    """A consumer of each kind in this rack, by its topic."""
    topics = {f"{name}-{rack}": make for name, make in makers.items()}
    admin = AdminClient({"bootstrap.servers": racks.bootstrap})
    made = admin.create_topics([NewTopic(each, PARTITIONS) for each in topics])
    for each in made.values():
        each.result(PATIENCE_SECONDS)
    with ExitStack() as stack:
        running = {topic: make(racks.bootstrap, topic, rack) for topic, make in topics.items()}
        for reader in running.values():
            stack.callback(reader.close)
        yield running


def _consumed(racks: _Racks, readers: Mapping[str, RackReader], phase: str) -> dict[str, dict[str, int]]:
    """By topic, the records that each broker has sent of those that were produced now."""
    before = {topic: racks.sent(topic) for topic in readers}
    for topic in readers:
        racks.produce(topic, _values(phase))
    for topic, reader in readers.items():
        assert set(read(reader, 4 * PARTITIONS)) == _values(phase), topic
    return {
        topic: {name: sent - before[topic][name] for name, sent in racks.sent(topic).items()}
        for topic in readers
    }


async def test_replicas_are_one_broker_of_each_rack_and_cannot_be_chosen(url: str) -> None:
    first = node(url, "a", times=CALM, rack="east")
    second = node(url, "b", times=CALM, rack="west")
    await first.start()
    await second.start()
    try:
        await until(lambda: len(first.view.brokers) == 2)
        async with Wire(str(first.listeners["kafka"])) as wire:
            await wire.create_topic("t", 1)
            codes = {}
            for replicas in ((1, 2), (2, 1), (1,), (2,)):
                partition = reassignments.ReassignablePartition(partition_index=0, replicas=list(replicas))
                topic = reassignments.ReassignableTopic(name="t", partitions=[partition])
                answer = await wire.ask(
                    reassignments.AlterPartitionReassignmentsRequest(topics=[topic]),
                    reassignments.AlterPartitionReassignmentsResponse,
                )
                codes[replicas] = answer.responses[0].partitions[0].error_code
            assert sorted(codes.values()) == sorted([0, *[ErrorCode.INVALID_REPLICA_ASSIGNMENT] * 3])
            assert [len(each) for each, code in codes.items() if not code] == [2]
            resource = DescribeConfigsResource(
                resource_type=ResourceType.BROKER, resource_name="1", configuration_keys=["broker.rack"]
            )
            shown = await wire.ask(DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse)
            assert [each.value for each in shown.results[0].configs] == ["east"]
    finally:
        await second.stop()
        await first.stop()


def test_consumers_without_a_rack_read_from_the_leaders(racks: _Racks) -> None:
    with _reading(racks, _READERS, "") as running:
        admin = AdminClient({"bootstrap.servers": racks.bootstrap})
        for topic, sent in _consumed(racks, running, "first").items():
            metadata = admin.list_topics(topic, timeout=PATIENCE_SECONDS)
            names = dict(zip(sorted(metadata.brokers), _RACKS, strict=True))
            led = Counter(names[each.leader] for each in metadata.topics[topic].partitions.values())
            assert all(sent[name] >= 4 * led[name] > 0 for name in _RACKS), (topic, sent, led)


def test_consumers_read_in_their_rack_while_it_has_a_broker(racks: _Racks, tmp_path: Path) -> None:
    makers = dict(_READERS)
    libraries = java_clients()
    if isinstance(libraries, Path):
        makers["java"] = partial(Java, libraries=libraries, errors=tmp_path / "java.log")
    with _reading(racks, makers, "west") as running:
        for topic, sent in _consumed(racks, running, "first").items():
            assert sent["one"] == 0 < min(sent["two"], sent["three"]), (topic, sent)
        racks.kill("two")
        asyncio.run(_until_sent_to(racks.brokers["one"], 1))
        for topic, sent in _consumed(racks, running, "second").items():
            # A consumer that does not know yet that it may read there is served by the leader.
            assert sent["three"] > 0, (topic, sent)
        racks.kill("three")
        for topic, sent in _consumed(racks, running, "third").items():
            assert sent["one"] >= 4 * PARTITIONS, (topic, sent)
