"""What a broker refuses, and in which words: (name, steps, reply code, reply text).

The last step of each is refused. Codes and texts are RabbitMQ 3.10's, recorded from it, but where a comment
says otherwise. Codes of a channel close the channel; the others close the connection.
"""

from dataclasses import dataclass, field
from typing import Any

from pamqp import base
from pamqp.commands import Basic, Channel, Confirm, Connection, Exchange, Queue, Tx


@dataclass(frozen=True, slots=True)
class Publish:
    exchange: str = ""
    key: str = "r-q"
    mandatory: bool = False
    immediate: bool = False
    properties: dict[str, Any] = field(default_factory=dict)


Step = "base.Frame | Publish"


@dataclass(frozen=True, slots=True)
class Refusal:
    name: str
    steps: list[Any]
    code: int
    text: str


def declare(name: str = "r-q", **arguments: Any) -> Queue.Declare:
    """A queue that goes with its connection."""
    return Queue.Declare(queue=name, exclusive=True, arguments=arguments)


def argument(name: str, value: Any, **more: Any) -> Queue.Declare:
    return declare("r-a", **{name: value}, **more)


REFUSALS = [
    Refusal("passive declare of no queue", [Queue.Declare(queue="nope", passive=True)], 0, ""),
    Refusal("queue of a reserved name", [Queue.Declare(queue="amq.mine")], 0, ""),
    Refusal("passive declare of no reserved queue", [Queue.Declare(queue="amq.mine", passive=True)], 0, ""),
    Refusal("durable differs", [Queue.Declare(queue="r-d", auto_delete=True), Basic.Consume(queue="r-d"), Queue.Declare(queue="r-d", durable=True, auto_delete=True)], 0, ""),
    Refusal("auto-delete differs", [Queue.Declare(queue="r-d", auto_delete=True), Basic.Consume(queue="r-d"), Queue.Declare(queue="r-d")], 0, ""),
    Refusal("exclusive differs", [Queue.Declare(queue="r-d", auto_delete=True), Basic.Consume(queue="r-d"), Queue.Declare(queue="r-d", exclusive=True, auto_delete=True)], 0, ""),
    Refusal("argument differs", [declare(**{"x-max-length": 5}), declare(**{"x-max-length": 6})], 0, ""),
    Refusal("argument is new", [declare(), declare(**{"x-max-length": 6})], 0, ""),
    Refusal("argument is missing", [declare(**{"x-message-ttl": 60000}), declare()], 0, ""),
    Refusal("text argument differs", [declare(**{"x-dead-letter-exchange": "a"}), declare(**{"x-dead-letter-exchange": "b"})], 0, ""),
    Refusal("boolean argument differs", [declare(**{"x-single-active-consumer": True}), declare(**{"x-single-active-consumer": False})], 0, ""),
    Refusal("ttl of text", [argument("x-message-ttl", "soon")], 0, ""),
    Refusal("negative ttl", [argument("x-message-ttl", -1)], 0, ""),
    Refusal("ttl of float", [argument("x-message-ttl", 1.5)], 0, ""),
    Refusal("ttl of bool", [argument("x-message-ttl", True)], 0, ""),
    Refusal("ttl too large", [argument("x-message-ttl", 10**15)], 0, ""),
    Refusal("expires never", [argument("x-expires", 0)], 0, ""),
    Refusal("negative expires", [argument("x-expires", -1)], 0, ""),
    Refusal("expires of text", [argument("x-expires", "1")], 0, ""),
    Refusal("negative length", [argument("x-max-length", -1)], 0, ""),
    Refusal("length of text", [argument("x-max-length", "1")], 0, ""),
    Refusal("negative bytes", [argument("x-max-length-bytes", -1)], 0, ""),
    Refusal("overflow unknown", [argument("x-overflow", "explode")], 0, ""),
    Refusal("overflow of number", [argument("x-overflow", 1)], 0, ""),
    Refusal("dead letter exchange of number", [argument("x-dead-letter-exchange", 1)], 0, ""),
    Refusal("dead letter key of number", [argument("x-dead-letter-routing-key", 1, **{"x-dead-letter-exchange": ""})], 0, ""),
    Refusal("dead letter key without exchange", [argument("x-dead-letter-routing-key", "k")], 0, ""),
    Refusal("priority too high", [argument("x-max-priority", 256)], 0, ""),
    Refusal("negative priority", [argument("x-max-priority", -1)], 0, ""),
    Refusal("priority of text", [argument("x-max-priority", "1")], 0, ""),
    Refusal("single active of text", [argument("x-single-active-consumer", "yes")], 0, ""),
    Refusal("unknown queue type", [Queue.Declare(queue="r-t", durable=True, arguments={"x-queue-type": "fancy"})], 0, ""),
    Refusal("queue type of number", [Queue.Declare(queue="r-t", durable=True, arguments={"x-queue-type": 1})], 0, ""),
    Refusal("exclusive quorum queue", [declare("r-t", **{"x-queue-type": "quorum"})], 0, ""),
    Refusal("transient quorum queue", [Queue.Declare(queue="r-t", arguments={"x-queue-type": "quorum"})], 0, ""),
    Refusal("priority quorum queue", [Queue.Declare(queue="r-t", durable=True, arguments={"x-queue-type": "quorum", "x-max-priority": 3})], 0, ""),
    Refusal("delivery limit of text", [Queue.Declare(queue="r-t", durable=True, arguments={"x-queue-type": "quorum", "x-delivery-limit": "x"})], 0, ""),
    Refusal("negative delivery limit", [Queue.Declare(queue="r-t", durable=True, arguments={"x-queue-type": "quorum", "x-delivery-limit": -1})], 0, ""),
    Refusal("queue mode unknown", [argument("x-queue-mode", "busy")], 0, ""),
    Refusal("queue mode of number", [argument("x-queue-mode", 1)], 0, ""),
    Refusal("queue version of text", [argument("x-queue-version", "x")], 0, ""),
    Refusal("no last queue for get", [Basic.Get(queue="")], 0, ""),
    Refusal("no last queue for bind", [Queue.Bind(queue="", exchange="amq.direct")], 0, ""),
    Refusal("get of no queue", [Basic.Get(queue="nope")], 0, ""),
    Refusal("purge of no queue", [Queue.Purge(queue="nope")], 0, ""),
    Refusal("consume of no queue", [Basic.Consume(queue="nope")], 0, ""),
    Refusal("bind of no queue", [Queue.Bind(queue="nope", exchange="amq.direct", routing_key="k")], 0, ""),
    Refusal("bind to no exchange", [declare(), Queue.Bind(queue="r-q", exchange="nope", routing_key="k")], 0, ""),
    Refusal("bind to the default exchange", [declare(), Queue.Bind(queue="r-q", exchange="", routing_key="k")], 0, ""),
    Refusal("unbind from the default exchange", [declare(), Queue.Unbind(queue="r-q", exchange="", routing_key="k")], 0, ""),
    Refusal("unbind of no queue", [Queue.Unbind(queue="nope", exchange="amq.direct", routing_key="k")], 0, ""),
    Refusal("unbind from no exchange", [declare(), Queue.Unbind(queue="r-q", exchange="nope", routing_key="k")], 0, ""),
    Refusal("headers binding with a bad x-match", [declare(), Queue.Bind(queue="r-q", exchange="amq.headers", arguments={"x-match": "some"})], 0, ""),
    Refusal("headers binding with a number as x-match", [declare(), Queue.Bind(queue="r-q", exchange="amq.headers", arguments={"x-match": 1})], 0, ""),
    Refusal("delete of a queue in use", [declare(), Basic.Consume(queue="r-q"), Queue.Delete(queue="r-q", if_unused=True)], 0, ""),
    Refusal("delete of a queue with messages", [declare(), Confirm.Select(), Publish(), Basic.Qos(prefetch_count=1), Queue.Delete(queue="r-q", if_empty=True)], 0, ""),
    Refusal("exclusive consume beside another", [declare(), Basic.Consume(queue="r-q"), Basic.Consume(queue="r-q", exclusive=True)], 0, ""),
    Refusal("consume beside an exclusive one", [declare(), Basic.Consume(queue="r-q", exclusive=True), Basic.Consume(queue="r-q")], 0, ""),
    Refusal("consumer tag twice", [declare(), Basic.Consume(queue="r-q", consumer_tag="c"), Basic.Consume(queue="r-q", consumer_tag="c")], 0, ""),
    Refusal("consumer priority of text", [declare(), Basic.Consume(queue="r-q", arguments={"x-priority": "high"})], 0, ""),
    Refusal("unknown exchange type", [Exchange.Declare(exchange="r-x", exchange_type="fancy")], 0, ""),
    Refusal("passive declare of no exchange", [Exchange.Declare(exchange="nope", passive=True)], 0, ""),
    Refusal("exchange of a reserved name", [Exchange.Declare(exchange="amq.mine", exchange_type="direct")], 0, ""),
    Refusal("declare of the default exchange", [Exchange.Declare(exchange="", exchange_type="direct")], 0, ""),
    Refusal("passive declare of the default exchange", [Exchange.Declare(exchange="", passive=True)], 0, ""),
    Refusal("exchange type differs", [Exchange.Declare(exchange="amq.direct", exchange_type="fanout", durable=True)], 0, ""),
    Refusal("exchange durable differs", [Exchange.Declare(exchange="amq.direct", exchange_type="direct")], 0, ""),
    Refusal("exchange auto-delete differs", [Exchange.Declare(exchange="amq.direct", exchange_type="direct", durable=True, auto_delete=True)], 0, ""),
    Refusal("exchange internal differs", [Exchange.Declare(exchange="amq.direct", exchange_type="direct", durable=True, internal=True)], 0, ""),
    Refusal("alternate exchange differs", [Exchange.Declare(exchange="amq.direct", exchange_type="direct", durable=True, arguments={"alternate-exchange": "a"})], 0, ""),
    Refusal("alternate exchange of number", [Exchange.Declare(exchange="r-x", exchange_type="direct", arguments={"alternate-exchange": 5})], 0, ""),
    Refusal("delete of a system exchange", [Exchange.Delete(exchange="amq.direct")], 0, ""),
    Refusal("delete of the default exchange", [Exchange.Delete(exchange="")], 0, ""),
    Refusal("delete of an exchange in use", [Exchange.Declare(exchange="r-u", exchange_type="fanout", auto_delete=True), declare(), Queue.Bind(queue="r-q", exchange="r-u"), Exchange.Delete(exchange="r-u", if_unused=True)], 0, ""),
    Refusal("exchange bind from no exchange", [Exchange.Bind(destination="amq.direct", source="nope")], 0, ""),
    Refusal("exchange bind to no exchange", [Exchange.Bind(destination="nope", source="amq.direct")], 0, ""),
    Refusal("exchange bind to the default exchange", [Exchange.Bind(destination="", source="amq.direct")], 0, ""),
    Refusal("exchange bind from the default exchange", [Exchange.Bind(destination="amq.direct", source="")], 0, ""),
    Refusal("exchange unbind from no exchange", [Exchange.Unbind(destination="amq.direct", source="nope")], 0, ""),
    Refusal("publish to no exchange", [Publish("nope")], 0, ""),
    Refusal("publish to an internal exchange", [Exchange.Declare(exchange="r-i", exchange_type="fanout", internal=True, auto_delete=True), declare(), Queue.Bind(queue="r-q", exchange="r-i"), Publish("r-i")], 0, ""),
    Refusal("immediate publish", [Publish(immediate=True)], 0, ""),
    Refusal("publish as somebody else", [Publish(properties={"user_id": "root"})], 0, ""),
    Refusal("publish with a bad expiration", [declare(), Publish(properties={"expiration": "soon"})], 0, ""),
    Refusal("publish with a negative expiration", [declare(), Publish(properties={"expiration": "-1"})], 0, ""),
    Refusal("CC that is no list", [declare(), Publish(properties={"headers": {"CC": "other"}})], 0, ""),
    Refusal("CC of numbers", [declare(), Publish(properties={"headers": {"CC": [1]}})], 0, ""),
    Refusal("prefetch size", [Basic.Qos(prefetch_size=1)], 0, ""),
    Refusal("recover without requeue", [Basic.Recover(requeue=False)], 0, ""),
    Refusal("ack of an unknown tag", [Basic.Ack(1)], 0, ""),
    Refusal("ack of tag 0", [Basic.Ack(0)], 0, ""),
    Refusal("multiple ack of an unknown tag", [Basic.Ack(7, True)], 0, ""),
    Refusal("nack of an unknown tag", [Basic.Nack(9)], 0, ""),
    Refusal("reject of an unknown tag", [Basic.Reject(9)], 0, ""),
    Refusal("ack twice", [declare(), Confirm.Select(), Publish(), Basic.Get(queue="r-q"), Basic.Ack(1), Basic.Ack(1)], 0, ""),
    Refusal("commit without tx", [Tx.Commit()], 0, ""),
    Refusal("rollback without tx", [Tx.Rollback()], 0, ""),
    Refusal("confirms on a tx channel", [Tx.Select(), Confirm.Select()], 0, ""),
    Refusal("tx on a confirm channel", [Confirm.Select(), Tx.Select()], 0, ""),
    Refusal("channel opened twice", [Channel.Open()], 0, ""),
    Refusal("flow off", [Channel.Flow(False)], 0, ""),
    Refusal("reply-to with acks", [Basic.Consume(queue="amq.rabbitmq.reply-to")], 0, ""),
    Refusal("reply-to twice", [Basic.Consume(queue="amq.rabbitmq.reply-to", no_ack=True), Basic.Consume(queue="amq.rabbitmq.reply-to", no_ack=True)], 0, ""),
    Refusal("reply-to without consumer", [declare(), Publish(properties={"reply_to": "amq.rabbitmq.reply-to"})], 0, ""),
    Refusal("declare of an unknown reply queue", [Queue.Declare(queue="amq.rabbitmq.reply-to.nobody", passive=True)], 0, ""),
    Refusal("a method that only brokers send", [Queue.DeclareOk("q", 0, 0)], 0, ""),
    Refusal("a connection method on a channel", [Connection.Blocked("x")], 0, ""),
]
