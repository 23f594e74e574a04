"""Topics and groups, which with upstream have to be there before clients of the gRPC protocol come."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from posthouse.protocols.rocketmq.codec.codes import RequestCode
from posthouse.protocols.rocketmq.codec.routes import Route, decode_route
from tests.protocols.rocketmq.remoting_client import RemotingClient

TYPES = {
    "routed": "NORMAL",
    "normal": "NORMAL",
    "ordered": "FIFO",
    "delayed": "DELAY",
    "decided": "TRANSACTION",
    "received": "NORMAL",
    "filtered": "NORMAL",
    "acknowledged": "NORMAL",
    "buried": "FIFO",
    "redelivered": "NORMAL",
    "offsets": "NORMAL",
}
"""Topics with the only type of messages that upstream's topic then takes."""
QUEUES = {"routed": 4}
"""The others have one, so that there is one place for a message."""
GROUPS = ("group", "receivers", "filtering", "acknowledging", "redelivering", "deciding", "others")
ORDERED = ("in-order", "burying")
"""Groups."""
_SECONDS = 60
"""For a broker to register, and for a topic to be known to the name server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    name: str
    is_ordered: bool = False
    retries: int = 16


async def prepare(remoting: str) -> None:
    groups = (
        *(Group(name=each) for each in GROUPS),
        *(Group(name=each, is_ordered=True) for each in ORDERED),
    )
    await prepare_all(remoting, TYPES, groups, QUEUES)


async def prepare_all(
    remoting: str, types: Mapping[str, str], groups: Sequence[Group], queues: Mapping[str, int] | None = None
) -> None:
    """Topics of these types, and groups. Unless something else is said, topics have one queue."""
    names = await RemotingClient.open(remoting)
    async with asyncio.timeout(_SECONDS):
        # The route of the topic that stands for all that do not exist names the broker.
        [found] = (await _route(names, "TBW102")).brokers
        broker = await RemotingClient.open(found.addresses[0])
        for topic, kind in types.items():
            fields = _topic(topic, kind, (queues or {}).get(topic, 1))
            await _done(broker, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
        for group in groups:
            await _done(broker, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, _group(group))
        for topic in types:
            await _route(names, topic)
    await broker.close()
    await names.close()


async def _route(names: RemotingClient, topic: str) -> Route:
    """When the name server knows it."""
    while True:
        found = await names.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        if not found.code:
            return decode_route(found.body)
        await asyncio.sleep(0.1)


async def _done(broker: RemotingClient, code: int, fields: dict[str, str | int], body: bytes = b"") -> None:
    answer = await broker.request(code, fields, body)
    assert answer.code == 0, answer


def _topic(name: str, kind: str, queues: int) -> dict[str, str | int]:
    return {
        "topic": name,
        "defaultTopic": "TBW102",
        "readQueueNums": queues,
        "writeQueueNums": queues,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": "false",
        "attributes": f"+message.type={kind}",
    }


def _group(group: Group) -> bytes:
    said = {
        "groupName": group.name,
        "consumeMessageOrderly": group.is_ordered,
        "retryMaxTimes": group.retries,
    }
    return json.dumps(said).encode()
