"""Searches by key count whichever protocol asks."""

from posthouse.listener_settings import Address
from posthouse.protocols.kafka.codec.own.key_places import (
    KeyPlacesRange,
    KeyPlacesRequest,
    KeyPlacesResponse,
)
from posthouse.protocols.rocketmq.codec.codes import RequestCode
from posthouse.records.builder import BatchBuilder
from posthouse.testing import AsyncBroker
from tests.protocols.admin.clients import answered
from tests.protocols.admin.clients import client as http_client
from tests.protocols.admin.metrics.scraping import scrape
from tests.protocols.kafka.wire import Wire
from tests.protocols.rocketmq.remoting_client import client_of


async def test_all_searches_are_counted() -> None:
    async with (
        AsyncBroker(rocketmq=Address("127.0.0.1", 0)) as broker,
        http_client(broker) as http,
        Wire(broker.kafka) as wire,
        client_of(broker) as rocketmq,
    ):
        topic = await wire.create_topic("t", partitions=3, index_keys="true")
        builder = BatchBuilder()
        builder.add(b"k", b"v" * 1000, (), 1)
        await wire.produce(topic, builder.build())

        async def counted() -> tuple[int, int]:
            """Searches, and bytes that were read for them."""
            seen = await scrape(broker)
            searches = seen.value("posthouse_key_searches_total")
            return int(searches), int(seen.value("posthouse_key_searches_read_bytes_total"))

        async def reads(**parameters: str) -> None:
            page = answered(await http.get("/v1/topics/t/records", params=parameters))
            assert len(page["records"]) == 1

        assert await counted() == (0, 0)
        await reads()
        await reads(offset="0", partition="0")
        assert await counted() == (0, 0), "nothing was looked for"
        await reads(key="k")
        searches, over_http = await counted()
        assert searches == 1
        assert over_http > 1000
        found = await rocketmq.request(RequestCode.QUERY_MESSAGE, {"topic": "t", "key": "k"})
        assert found.code == 0
        searches, with_rocketmq = await counted()
        assert searches == 2
        assert with_rocketmq > over_http + 1000
        ranges = [KeyPlacesRange(partition=each, first=0, end=1) for each in range(3)]
        asked = KeyPlacesRequest(topic_id=topic, name=b"k", ranges=ranges)
        assert (await wire.ask(asked, KeyPlacesResponse)).error_code == 0
        assert await counted() == (3, with_rocketmq), "who asks reads"
