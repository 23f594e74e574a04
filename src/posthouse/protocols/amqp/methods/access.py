"""access.request. Tickets mean nothing since AMQP 0-9-1; every client gets the same one."""

from posthouse.protocols.amqp.channel import Channel
from posthouse.protocols.amqp.codec.access import Request, RequestOk


def request(channel: Channel, method: Request) -> bytes:
    return channel.answer(RequestOk(1))
