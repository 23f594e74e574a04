"""Messages of RocketMQ's clients in Spark, and rows of Spark as messages: keys, properties and bodies."""

import asyncio
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from posthouse.client import Client
from posthouse.settings import Address
from posthouse.testing import ThreadBroker
from tests.protocols.rocketmq.remoting_client import RemotingClient, own_properties

pytestmark = pytest.mark.xdist_group("spark")


@pytest.fixture
def rocket() -> Iterator[ThreadBroker]:
    with ThreadBroker(rocketmq=Address("127.0.0.1", 0)) as running:
        yield running


def test_both_ways(spark: SparkSession, rocket: ThreadBroker) -> None:
    asyncio.run(send(rocket.address("rocketmq")))
    options = {"kafka.bootstrap.servers": rocket.kafka, "includeHeaders": "true"}
    rows = spark.read.format("posthouse").options(**options, subscribe="shop").load().collect()
    [row] = rows
    assert (row.key, row.value) == (b"4711 blue", "straße".encode())
    headers = {name: bytes(value) for name, value in row.headers}
    del headers["rocketmq.message"]
    assert headers == {"KEYS": b"4711 blue", "TAGS": b"paid", "tenant": "blåu".encode()}

    with Client(rocket.kafka) as client:
        client.create_topic("back", partitions=1)
    found = spark.read.format("posthouse").options(**options, subscribe="shop").load()
    written = found.selectExpr(
        "key", "value", "filter(headers, each -> each.key IN ('TAGS', 'tenant')) AS headers"
    )
    written.write.format("posthouse").options(**options, topic="back").mode("append").save()
    asyncio.run(receive(rocket.address("rocketmq")))


async def send(address: str) -> None:
    client = await RemotingClient.open(address)
    properties = {"KEYS": "4711 blue", "TAGS": "paid", "tenant": "blåu"}
    assert (await client.send("shop", "straße".encode(), properties=properties)).code == 0
    await client.close()


async def receive(address: str) -> None:
    client = await RemotingClient.open(address)
    [message] = await client.messages("back", subscription="paid")
    assert message.body == "straße".encode()
    assert own_properties(message) == {"KEYS": "4711 blue", "TAGS": "paid", "tenant": "blåu"}
    await client.close()
