"""channel.flow. Opening and closing channels is the connection's."""

from pamqp.commands import Channel as Methods

from posthouse.protocols.amqp.channel import Channel


def flow(channel: Channel, method: Methods.Flow) -> bytes:
    """Whether the client wants deliveries. RabbitMQ refuses to stop them; the standard does not."""
    channel.is_flowing = bool(method.active)
    if channel.is_flowing:
        channel.raise_credit()
    return channel.answer(Methods.FlowOk(channel.is_flowing))
