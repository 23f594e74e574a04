"""confirm.select."""

from pamqp.commands import Confirm

from posthouse.protocols.amqp.acknowledgements import Confirms
from posthouse.protocols.amqp.channel import Channel
from posthouse.protocols.amqp.errors import precondition_failed


def select(channel: Channel, method: Confirm.Select) -> bytes | None:
    if channel.transaction is not None:
        raise precondition_failed("cannot switch from tx to confirm mode")
    if channel.confirms is None:
        channel.confirms = Confirms(channel.number, channel.outbox)
    return None if method.nowait else channel.answer(Confirm.SelectOk())
