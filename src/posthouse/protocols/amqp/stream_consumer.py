"""A consumer of a stream: a reader with its own offset; acknowledgements raise its credit."""

from collections.abc import Sequence

from posthouse.broker.queues.message import Message
from posthouse.broker.queues.stream_queue import StreamQueue
from posthouse.protocols.amqp.arguments import Arguments, age_ms, invalid, type_name
from posthouse.protocols.amqp.codec import encode
from posthouse.protocols.amqp.codec.tables import Timestamp
from posthouse.protocols.amqp.consumer import ChannelConsumer
from posthouse.protocols.amqp.mapping.stream_offsets import HEADER


class StreamConsumer(ChannelConsumer):
    """See `broker.queues.message.Consumer`."""

    __slots__ = ()

    def deliver(self, messages: Sequence[Message]) -> None:
        channel = self.channel
        deliveries = channel.deliveries
        held = deliveries.held
        delivery_tag = deliveries.last_tag
        frame_max = channel.session.frame_max
        shown = channel.session.shown.of
        with_offset = channel.session.stream_offsets.added_to
        frames = []
        for message in messages:
            exchange, properties = shown(message.headers, message.topic, message.timestamp)
            delivery_tag += 1
            held[delivery_tag] = (delivery_tag, message, self)
            frames.append(
                encode.deliver(
                    channel.number,
                    self._tag,
                    delivery_tag,
                    False,
                    exchange,
                    message.key or b"",
                    with_offset(properties, message.position),
                    message.value or b"",
                    frame_max,
                )
            )
        deliveries.last_tag = delivery_tag
        self.unacked += len(messages)
        channel.outbox.send_all(frames)
        channel.session.delivered.untimed += len(messages)
        if not (throttle := channel.session.throttle).quotas.is_empty:
            throttle.delivered(sum(map(len, frames)))


async def start_of(queue: StreamQueue, arguments: Arguments, subject: str) -> int:
    """The offset that a consumer begins at, by its argument `x-stream-offset`."""
    match arguments.get(HEADER, "next"):
        case "next" | b"next":
            return queue.next
        case "first" | b"first":
            return queue.first
        case "last" | b"last":
            return await queue.last()
        case Timestamp() as seconds:
            return await queue.at_time(seconds * 1000)
        case str() as interval if (milliseconds := age_ms(interval)) is not None:
            return await queue.ago(milliseconds)
        case int() as offset if not isinstance(offset, bool):
            return offset
        case wrong:
            shown = f'<<"{wrong}">>' if isinstance(wrong, str) else wrong
            raise invalid(HEADER, subject, f"{{invalid_stream_offset_arg,{{{type_name(wrong)},{shown}}}}}")
