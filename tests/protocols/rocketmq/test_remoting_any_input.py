"""Random fields and bodies for every request: each is answered, and the broker is never at fault."""

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.listener_settings import Address
from posthouse.protocols.rocketmq.codec.batch_bodies import BatchMessage, encode_batch
from posthouse.protocols.rocketmq.codec.codes import RequestCode
from posthouse.protocols.rocketmq.codec.commands import Command, Serialization
from posthouse.protocols.rocketmq.remoting.dispatch import HANDLERS
from posthouse.testing import AsyncBroker
from tests.protocols.rocketmq.codec.rocketmq_cases import few
from tests.protocols.rocketmq.remoting_client import DEADLINE, RemotingClient

NAMES = [
    *"abcdefghijklmn",
    *("topic", "queueId", "queueOffset", "consumerGroup", "group", "offset", "delayLevel", "originTopic"),
    *("originMsgId", "maxReconsumeTimes", "sysFlag", "maxMsgNums", "maxMsgBytes", "commitOffset"),
    *("suspendTimeoutMillis", "subscription", "expressionType", "timestamp", "clientID", "producerGroup"),
    *("properties", "bornTimestamp", "flag", "reconsumeTimes", "batch", "defaultTopicQueueNums"),
]
NUMBERS = [0, 1, -1, 5, 31, 2**31 - 1, 2**31, -(2**31), 2**45, 2**62, 2**63 - 1, 2**63, -(2**63), 10**30]
TEXTS = ["t", "%RETRY%g", "%DLQ%g", "TBW102", "g", "", "true", "*", "a = 1", "SQL92", "TAG", "ä", "x" * 300]
PROPERTIES = [
    *("DELAY\x019\x02", "DELAY\x01\x02", "TIMER_DELIVER_MS\x01-1\x02", "TIMER_DELAY_MS\x01999\x02"),
    *(
        "KEYS\x01\x02",
        "a\x01b\x01c\x02",
        "\x02\x01",
        "TAGS\x01red\x02UNIQ_KEY\x01" + "\U0001f600" * 20 + "\x02",
    ),
    "TIMER_DELAY_SEC\x01" + "9" * 18 + "\x02",
]
values = (
    st.sampled_from(NUMBERS).map(str)
    | st.sampled_from(TEXTS)
    | st.sampled_from(PROPERTIES)
    | st.text(max_size=20)
)
# Most requests would fail by a missing field otherwise.
good = dict.fromkeys(["e", "queueId", "queueOffset", "offset", "timestamp", "commitOffset"], "0")
good |= dict.fromkeys(["b", "topic", "originTopic"], "t") | {"consumerGroup": "g", "group": "g"}
good |= {"i": "", "clientID": "c", "sysFlag": "4"}
fields = st.dictionaries(st.sampled_from(NAMES), values, max_size=4).map(lambda found: good | found)
HEARTBEAT = (
    b"""{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":"t"}]}]}"""
)
LOCKS = b"""{"clientId":"c","consumerGroup":"g","mqSet":[{"topic":"t","brokerName":"b","queueId":0}]}"""
CHECK = b"""{"subscriptionData":{"subString":"a = 1","expressionType":"SQL92"}}"""
BATCH = encode_batch([BatchMessage(flag=0, body=b"x", properties="TAGS\x01red\x02")] * 2)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    body = bytearray(draw(st.sampled_from([HEARTBEAT, LOCKS, CHECK, BATCH])))
    for _ in range(draw(st.integers(0, 3))):
        body[draw(st.integers(0, len(body) - 1))] = draw(st.integers(0, 255))
    return bytes(body[: draw(st.integers(0, len(body)))]) if draw(st.booleans()) else bytes(body)


bodies = damaged() | st.binary(max_size=50)


class Rig:
    """A broker and connections that stay from one example to the next."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self.broker = AsyncBroker(rocketmq=Address("127.0.0.1", 0))
        self.runner.run(self.broker.__aenter__())
        self.clients = [
            self.runner.run(RemotingClient.open(self.broker.address("rocketmq"), each))
            for each in Serialization
        ]
        for body in (b"a", b"b", b"c"):
            self.ask(0, RequestCode.SEND_MESSAGE_V2, good, body)

    def ask(self, client: int, code: int, fields: dict[str, str], body: bytes) -> Command:
        return self.runner.run(self.clients[client].request(code, fields, body))

    def close(self) -> None:
        for each in self.clients:
            self.runner.run(each.close())
        self.runner.run(self.broker.__aexit__(None, None, None))
        self.runner.close()


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.close()


@pytest.mark.parametrize("code", HANDLERS, ids=lambda code: RequestCode(code).name.lower())
def test_any_request_is_answered(rig: Rig, code: int) -> None:
    @few(120)
    @given(st.integers(0, 1), fields, bodies)
    def check(client: int, fields: dict[str, str], body: bytes) -> None:
        answer = rig.ask(client, code, fields | {"suspendTimeoutMillis": "0"}, body)
        assert "its log says why" not in (answer.remark or "")
        assert answer.code == 0 or answer.remark or code in (11, 361)

    check()


def test_after_all_of_that_every_message_can_be_pulled(rig: Rig) -> None:
    """Nothing was stored that stops a queue."""
    for topic in list(rig.broker.app.broker.topics):
        name = topic.name.replace(".", "%")
        for queue in range(topic.partitions):
            end = rig.broker.app.broker.bounds(topic, queue).stable
            offset = 0
            while offset < end:
                fields = rig.clients[0].pull_fields(name, offset, queue=queue)
                answer = rig.ask(0, 11, {key: str(value) for key, value in fields.items()}, b"")
                assert answer.code == 0, answer.remark
                offset = int(answer.fields["nextBeginOffset"])


def test_oneway_requests_are_never_answered(rig: Rig) -> None:
    client = rig.clients[0]

    async def flood() -> None:
        for code in HANDLERS:
            for body in (b"", HEARTBEAT, b"{"):
                client.oneway(code, {}, body)
                client.oneway(code, good, body)
        async with asyncio.timeout(DEADLINE):
            assert (await client.request(105, {"topic": "t"})).code == 0

    rig.runner.run(flood())
