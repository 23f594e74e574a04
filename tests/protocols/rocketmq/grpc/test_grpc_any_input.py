"""Any values in every request: each call has one status, and the broker is never at fault."""

import asyncio
import gzip
from collections.abc import Iterator
from typing import Any, Final

import grpc
import grpc.aio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.protocols.rocketmq.codec.codes import RequestCode
from posthouse.protocols.rocketmq.grpc.handlers import receive
from posthouse.protocols.rocketmq.grpc.messages import service
from posthouse.protocols.rocketmq.grpc.messages.codes import Code
from posthouse.protocols.rocketmq.grpc.messages.definition import MessageQueue, Resource
from posthouse.protocols.rocketmq.grpc.messages.enums import MessageType
from posthouse.protocols.rocketmq.grpc.messages.fields import Field, Kind, Presence
from posthouse.protocols.rocketmq.grpc.messages.proto_message import ProtoMessage
from posthouse.protocols.rocketmq.grpc.messages.service import (
    GetOffsetRequest,
    PullMessageRequest,
    PullMessageResponse,
    SendMessageRequest,
    UpdateOffsetRequest,
)
from posthouse.protocols.rocketmq.grpc.messages.telemetry import TelemetryCommand
from posthouse.protocols.rocketmq.grpc.messages.well_known import Duration, Timestamp
from posthouse.testing import AsyncBroker
from tests.protocols.rocketmq.codec.rocketmq_cases import few
from tests.protocols.rocketmq.grpc.conftest import ANY_PORT
from tests.protocols.rocketmq.grpc.messaging_client import DEADLINE, OK, MessagingClient, receipt
from tests.protocols.rocketmq.remoting_client import RemotingClient

RPCS: Final = {each.name: each for each in service.RPCS}
NAMES: Final = ("t", "t", "g", "%DLQ%g", "%RETRY%g", "TBW102", "", "a b", "x" * 300, "ä")
NUMBERS: Final = (0, 1, -1, 2, 3, 5, 32, 1023, 2**31 - 1, -(2**31))
LARGE: Final = (2**31, 2**45, 2**62, 2**63 - 1, -(2**63), -(2**40))
NANOS: Final = (0, 1, -1, 999_999_999, 2**31 - 1, -(2**31))
TEXTS: Final = ("", "*", "a || b", "|", "a = 1", "a = ", "red", "\x01", "ä€𝄞", "x" * 70, "x" * 5000, "0" * 16)
PULLING: Final = (PullMessageRequest, GetOffsetRequest, UpdateOffsetRequest)
"""Groups that receive have no offsets."""
SECONDS: Final = (0, 1, 10, 43_200, 1_700_000_000, 4_000_000_000, 253_402_300_800, *LARGE)


def values(handles: list[str]) -> dict[Kind, st.SearchStrategy[Any]]:
    any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
    texts = st.sampled_from([*TEXTS, *handles]) | any_text
    names = st.sampled_from(["a", "KEYS", "TRAN_MSG", ""]) | texts
    return {
        Kind.INT32: st.sampled_from(NUMBERS),
        Kind.INT64: st.sampled_from([*NUMBERS, *LARGE]),
        Kind.BOOLEAN: st.booleans(),
        Kind.FLOAT: st.floats(width=32),
        Kind.STRING: texts,
        Kind.BYTES: st.sampled_from([b"body", b"", b"x" * 4000, gzip.compress(b"packed"), b"\x1f\x8b\x08"]),
        Kind.STRING_MAP: st.dictionaries(names, texts, max_size=3),
    }


def requests(kind: type[ProtoMessage], handles: dict[str, list[str]]) -> st.SearchStrategy[Any]:
    """With what there is in most fields, by their names, and with any values in some: other requests fail
    early."""
    simple = values([each for some in handles.values() for each in some])
    usual: dict[str, st.SearchStrategy[Any]] = {
        **{name: st.sampled_from(some) for name, some in handles.items()},
        "topic": st.just(Resource(name="t")),
        "group": st.just(Resource(name="pulling" if kind in PULLING else "g")),
        "message_queue": st.sampled_from([-1, 0, 1]).map(
            lambda id: MessageQueue(topic=Resource(name="t"), id=id)
        ),
        "message_id": st.just("AB12"),
        "message_type": st.sampled_from(list(MessageType)),
        "body": st.just(b"body"),
        "offset": st.integers(0, 3),
        "invisible_duration": st.just(Duration.from_ms(20_000)),
    }

    def of(kind: type[ProtoMessage]) -> st.SearchStrategy[Any]:
        if kind is Resource:
            namespaces = st.sampled_from(["", "", "", "ns", "%", "a b"])
            return st.builds(Resource, resource_namespace=namespaces, name=st.sampled_from(NAMES))
        if kind in (Timestamp, Duration):
            return st.builds(kind, seconds=st.sampled_from(SECONDS), nanos=st.sampled_from(NANOS))

        @st.composite
        def drawn(draw: st.DrawFn) -> ProtoMessage:
            fields = kind.fields
            oneofs = {each.oneof: name for name, each in fields.items() if each.oneof is not None}
            chosen = {
                draw(st.sampled_from([name for name, each in fields.items() if each.oneof == oneof]))
                for oneof in oneofs
            }
            given: dict[str, Any] = {}
            for name, field in fields.items():
                if field.oneof is not None and name not in chosen:
                    continue
                way = draw(st.integers(0, 9))
                if name in usual and way < 8:
                    given[name] = draw(usual[name])
                elif way < 4 or way == 9 or field.presence is Presence.REPEATED or field.oneof is not None:
                    given[name] = draw(value_of(field))
            return kind(**given)

        return drawn()

    def value_of(field: Field) -> st.SearchStrategy[Any]:
        if field.kind is Kind.MESSAGE:
            value = of(field.type)
        elif field.kind is Kind.ENUM:
            value = st.sampled_from(list(field.type)) | st.sampled_from(NUMBERS)
        else:
            value = simple[field.kind]
        if field.presence is Presence.REPEATED:
            return st.lists(value, min_size=int(field.kind is Kind.MESSAGE), max_size=3).map(tuple)
        return value

    return of(kind)


class Rig:
    """A broker and a client that stay from one example to the next."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self.broker = AsyncBroker(rocketmq=ANY_PORT, rocketmq_grpc=ANY_PORT)
        self.runner.run(self.broker.__aenter__())
        self.client = self.runner.run(self._connected())

    async def _connected(self) -> MessagingClient:
        return MessagingClient(self.broker.address("rocketmq_grpc"))

    def filled(self) -> dict[str, list[str]]:
        return self.runner.run(self._filled())

    async def _filled(self) -> dict[str, list[str]]:
        """Receipts, and handles of what can be recalled or decided, by the names of their fields. There are
        messages, and a group has an offset."""
        client = self.client
        later = Timestamp.from_ms(1 << 45)
        [delayed] = (await client.send("t", message_type=MessageType.DELAY, delivery_timestamp=later)).entries
        [half] = (await client.send("t", message_type=MessageType.TRANSACTION)).entries
        await client.send("t", b"1", b"2", b"3", b"4", tag="red")
        leased = await client.receive("t", "g", most=2, invisible=3600)
        where = MessageQueue(topic=client.resource("t"), id=0)
        committed = UpdateOffsetRequest(group=client.resource("pulling"), message_queue=where)
        assert await client.code(committed) == OK
        strange = ["1.0.0.1.", "1.9.0.1.client", f"1.0.{2**63 - 1}.1.client", "1.1.1.1.%"]
        return {
            "receipt_handle": [*map(receipt, leased), *strange],
            "recall_handle": [delayed.recall_handle],
            "transaction_id": [half.transaction_id],
        }

    def statuses(self, name: str, request: ProtoMessage) -> list[int]:
        """Of the answer, or of all answers in the stream."""
        return self.runner.run(self._statuses(name, request))

    async def _statuses(self, name: str, request: ProtoMessage) -> list[int]:
        rpc = RPCS[name]
        answers: list[Any]
        if rpc.streams_responses:
            answers = await self.client.responses(request, rpc.response)
        else:
            answers = [rpc.response.decode(await self.client.call_bytes(name, request.encode()))]
        return [int(each.status.code) for each in answers if each.status is not None]

    def told(self, command: TelemetryCommand) -> grpc.StatusCode:
        return self.runner.run(self._told(command))

    async def _told(self, command: TelemetryCommand) -> grpc.StatusCode:
        """How the stream ends that has said this."""
        async with self.client.telemetry() as stream:
            await stream.write(command.encode())
            if command.settings is not None:
                try:
                    status = (await stream.command()).status
                except grpc.aio.AioRpcError as error:
                    return error.code()
                assert status is not None and status.code == OK
            await stream.close()
            return grpc.StatusCode.OK

    def close(self) -> None:
        self.runner.run(self.client.__aexit__(None, None, None))
        self.runner.run(self.broker.__aexit__(None, None, None))
        self.runner.close()


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with pytest.MonkeyPatch.context() as patch:  # nothing is waited for
        patch.setattr(receive, "LONGEST_POLL_SECONDS", 0.0)
        patch.setattr(receive, "_USUAL_POLL_SECONDS", 0.0)
        made = Rig()
        yield made
        made.close()


@pytest.mark.parametrize("name", [name for name in RPCS if name != "Telemetry"])
def test_any_request_has_one_status(rig: Rig, name: str) -> None:
    seen: set[int] = set()

    @few(150 if name == "SendMessage" else 80)
    @given(requests(RPCS[name].request, rig.filled()))
    def check(request: ProtoMessage) -> None:
        [status] = rig.statuses(name, request)
        assert status in list(Code)
        assert status not in (Code.CODE_UNSPECIFIED, Code.INTERNAL_ERROR), request
        seen.add(status)

    check()
    assert seen & {Code.OK, Code.MESSAGE_NOT_FOUND, Code.NOT_IMPLEMENTED}, "none was good"


def test_any_settings(rig: Rig) -> None:
    seen: set[grpc.StatusCode] = set()

    @few(150)
    @given(requests(TelemetryCommand, rig.filled()))
    def check(command: TelemetryCommand) -> None:
        end = rig.told(command)
        assert end in (grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT), command
        seen.add(end)

    check()
    assert len(seen) == 2


@pytest.mark.parametrize("name", [name for name in RPCS if name != "Telemetry"])
def test_any_bytes(rig: Rig, name: str) -> None:
    @few(30)
    @given(st.binary(max_size=60))
    def check(data: bytes) -> None:
        async def call() -> None:
            begin: Any = rig.client.channel.unary_stream(RPCS[name].path)
            try:
                async for answer in begin(data, metadata=rig.client.metadata, timeout=DEADLINE):
                    response: Any = RPCS[name].response.decode(answer)
                    assert response.status is None or response.status.code != Code.INTERNAL_ERROR
            except grpc.aio.AioRpcError as error:
                assert error.code() is grpc.StatusCode.INVALID_ARGUMENT

        rig.runner.run(call())

    check()


def test_after_all_of_that_every_message_is_consumed(rig: Rig) -> None:
    """Nothing was stored that stops a queue, for clients of either protocol."""

    async def consume() -> None:
        client = rig.client
        remoting = await RemotingClient.open(rig.broker.address("rocketmq"))
        for topic in list(rig.broker.app.broker.topics):
            for queue in range(topic.partitions):
                end = rig.broker.app.broker.bounds(topic, queue).stable
                offset = 0
                while offset < end:
                    where = MessageQueue(topic=client.resource(topic.name), id=queue)
                    request = PullMessageRequest(
                        group=client.resource("fresh"), message_queue=where, offset=offset
                    )
                    status, *_, last = await client.responses(request, PullMessageResponse)
                    assert status.status is not None and status.status.code == OK, status
                    assert last.next_offset is not None and last.next_offset > offset
                    answer = await remoting.request(
                        RequestCode.PULL_MESSAGE, remoting.pull_fields(topic.name, offset, queue=queue)
                    )
                    assert answer.code == 0, answer.remark
                    offset = last.next_offset
        await remoting.close()

    rig.runner.run(consume())


def test_a_good_request_after_all_of_that(rig: Rig) -> None:
    message = rig.client.message("t", b"v")
    assert rig.statuses("SendMessage", SendMessageRequest(messages=(message,))) == [OK]
