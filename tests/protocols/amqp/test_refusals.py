"""Everything that is refused, by code and in words."""

from typing import Any

import pytest
from pamqp.commands import Channel, Queue

from posthouse.protocols.amqp.errors import ReplyCode
from tests.protocols.amqp.refusals import REFUSALS
from tests.protocols.amqp.steps import declare, quorum
from tests.protocols.amqp.wire import Wire

IN_OWN_WORDS: list[tuple[str, list[Any], int, str]] = [
    (
        "delivery limit of text",
        [quorum({"x-delivery-limit": "x"})],
        406,
        "invalid arg 'x-delivery-limit' for queue 'r-t' in vhost '/': \"expected integer, got longstr\"",
    ),
    (
        "negative delivery limit",
        [quorum({"x-delivery-limit": -1})],
        406,
        "invalid arg 'x-delivery-limit' for queue 'r-t' in vhost '/': {value_negative,-1}",
    ),
    (
        "headers binding with a number as x-match",
        [declare(), Queue.Bind(queue="r-q", exchange="amq.headers", arguments={"x-match": 1})],
        406,
        "Invalid x-match field type long (value 1); expected longstr",
    ),
]
"""RabbitMQ says it differently, or takes it: a delivery limit of text."""

ALL = REFUSALS + IN_OWN_WORDS


@pytest.mark.parametrize(
    ("steps", "code", "explanation"), [each[1:] for each in ALL], ids=[each[0] for each in ALL]
)
async def test_refusal(channel: Wire, steps: list[Any], code: int, explanation: str) -> None:
    refused = await channel.refused(1, steps)
    assert refused.code == code
    assert refused.text == f"{ReplyCode(code).name} - {explanation}"[:255]
    index = 0x003C0028 if not hasattr(steps[-1], "index") else steps[-1].index
    assert (refused.class_id, refused.method_id) == (index >> 16, index & 0xFFFF)
    if code in (403, 404, 405, 406):
        assert refused.channel == 1
        await channel.call(2, Channel.Open())
        await channel.call(1, Channel.Open())
    else:
        assert refused.channel == 0
        await channel.ended()
