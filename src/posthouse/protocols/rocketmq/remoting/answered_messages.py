"""Messages as answers have them."""

from posthouse.protocols.rocketmq.codec.stored_messages import StoredMessage
from posthouse.protocols.rocketmq.messages import Message, consumer_properties
from posthouse.protocols.rocketmq.names import RETRY
from posthouse.protocols.rocketmq.positions import pack_position
from posthouse.protocols.rocketmq.remoting.call import Caller


def answered_message(
    connection: Caller, topic: str, partition: int, offset: int, stored_at: int, message: Message
) -> StoredMessage:
    """`topic` is its name in RocketMQ."""
    return StoredMessage(
        topic=topic,
        queue=partition,
        queue_offset=offset,
        position=pack_position(partition, offset, is_retry=topic.startswith(RETRY)),
        body=message.body,
        properties=consumer_properties(message.properties),
        born_at=message.born_at,
        born_host=message.born_host,
        stored_at=stored_at,
        stored_host=connection.own_host,
        flag=message.flag,
        reconsume_times=message.reconsume_times,
    )
