"""EndTogether over the wire: what it answers, and how it says no."""

import pytest

from posthouse.protocols.kafka.codec.own.end_together import (
    ABORT,
    COMMIT,
    QUERY,
    EndTogetherMember,
    EndTogetherRequest,
    EndTogetherResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode
from tests.protocols.kafka.transactional_wire import TransactionalWire
from tests.protocols.kafka.wire import Wire


async def writer(wire: Wire, id: str, *values: bytes) -> TransactionalWire:
    made = TransactionalWire(wire, newer=True, id=id)
    assert await made.init() == 0
    await made.write(*values)
    return made


def member(producer: TransactionalWire) -> EndTogetherMember:
    return EndTogetherMember(
        transactional_id=producer.id, producer_id=producer.producer_id, producer_epoch=producer.epoch
    )


async def ask(
    wire: Wire, action: int, *producers: TransactionalWire, name: str = "q", sequence: int = -1
) -> EndTogetherResponse:
    request = EndTogetherRequest(
        action=action, name=name, sequence=sequence, members=[member(each) for each in producers]
    )
    return await wire.ask(request, EndTogetherResponse)


async def stable(wire: Wire, topic: bytes) -> int:
    return (await wire.fetch(topic, isolation_level=1)).last_stable_offset


async def test_commit_together(wire: Wire) -> None:
    topic = await wire.create_topic("t")
    one, two = await writer(wire, "q/0", b"a"), await writer(wire, "q/1", b"b", b"c")
    assert await stable(wire, topic) == 0
    assert await ask(wire, QUERY) == EndTogetherResponse(sequence=-1)
    assert await ask(wire, COMMIT, one, two, sequence=3) == EndTogetherResponse(has_ended=True, sequence=3)
    assert await stable(wire, topic) == 5
    assert await ask(wire, COMMIT, one, two, sequence=3) == EndTogetherResponse(has_ended=False, sequence=3)
    assert await ask(wire, QUERY) == EndTogetherResponse(sequence=3)


async def test_abort_together(wire: Wire) -> None:
    topic = await wire.create_topic("t")
    one = await writer(wire, "q/0", b"a")
    assert await ask(wire, ABORT, one) == EndTogetherResponse(has_ended=True)
    assert await stable(wire, topic) == 2
    refused = await ask(wire, COMMIT, one, sequence=0)
    assert (refused.error_code, refused.sequence) == (ErrorCode.PRODUCER_FENCED, -1)
    assert refused.error_message is not None
    assert "belongs to another producer" in refused.error_message
    await writer(wire, "q/7", b"b")
    answer = await wire.ask(EndTogetherRequest(action=ABORT, name="q"), EndTogetherResponse)
    assert (answer.error_code, await stable(wire, topic)) == (0, 4)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (EndTogetherRequest(action=9, name="q", members=[]), ErrorCode.INVALID_REQUEST),
        (EndTogetherRequest(action=COMMIT, name="q"), ErrorCode.INVALID_REQUEST),
        (EndTogetherRequest(action=COMMIT, name="q", sequence=-2, members=[]), ErrorCode.INVALID_REQUEST),
        (EndTogetherRequest(action=COMMIT, name="", members=[]), ErrorCode.INVALID_TXN_STATE),
        (
            EndTogetherRequest(action=COMMIT, name="q", members=[EndTogetherMember(transactional_id="x/0")]),
            ErrorCode.INVALID_TXN_STATE,
        ),
        (
            EndTogetherRequest(action=COMMIT, name="q", members=[EndTogetherMember(transactional_id="q/0")]),
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ),
    ],
)
async def test_refusals_are_sentences(wire: Wire, request_: EndTogetherRequest, code: ErrorCode) -> None:
    answer = await wire.ask(request_, EndTogetherResponse)
    assert answer.error_code == code
    assert answer.error_message
    assert not answer.has_ended
