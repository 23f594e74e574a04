"""channel.flow. Opening and closing channels is the connection's."""

from pamqp.commands import Channel as Methods

from posthouse.protocols.amqp.channel import Channel
from posthouse.protocols.amqp.errors import not_implemented


def flow(channel: Channel, method: Methods.Flow) -> bytes:
    """Clients cannot stop deliveries, as with RabbitMQ: that is what the prefetch is for."""
    if not method.active:
        raise not_implemented("active=false")
    return channel.answer(Methods.FlowOk(True))
