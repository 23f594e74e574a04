"""Which method needs which permissions, and what is said when one of them is missing.

Queues `q` and `q2`, exchanges `x` and `y` are there, and belong to nobody; `new` is not.
"""

from dataclasses import dataclass
from typing import Any

from pamqp.commands import Basic, Channel, Confirm, Exchange, Queue, Tx

from posthouse.broker.access.operations import Operation
from tests.protocols.amqp.steps import Publish

READ, WRITE, CREATE = Operation.READ, Operation.WRITE, Operation.CREATE
DELETE, DESCRIBE = Operation.DELETE, Operation.DESCRIBE


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    method: Any
    needs: tuple[tuple[Operation, str, str], ...] = ()
    """Operation, topic, and RabbitMQ's words for what is refused without."""
    before: tuple[Any, ...] = ()
    """What the same user does on the channel first; it must need nothing."""

    @property
    def kind(self) -> type[Any]:
        return Basic.Publish if isinstance(self.method, Publish) else type(self.method)

    @property
    def permissions(self) -> list[tuple[Operation, str]]:
        return [(operation, topic) for operation, topic, _ in self.needs]


def _queue(access: str, name: str) -> str:
    return f"{access} access to queue '{name}'"


def _exchange(access: str, name: str) -> str:
    return f"{access} access to exchange '{name}'"


_DLX = "x-dead-letter-exchange"
_DLK = "x-dead-letter-routing-key"
_OWN = Queue.Declare(exclusive=True)
_TAKES_NEW = (CREATE, "new", _queue("configure", "new"))
_ALL_QUEUES = (WRITE, "*", _exchange("write", "amq.default"))

CASES = [
    Case("flow", Channel.Flow(True)),
    Case("qos", Basic.Qos(prefetch_count=1)),
    Case("cancel", Basic.Cancel("nobody")),
    Case("recover", Basic.Recover(requeue=True)),
    Case("confirm", Confirm.Select()),
    Case("tx.select", Tx.Select()),
    Case("tx.commit", Tx.Commit(), before=(Tx.Select(),)),
    Case("tx.rollback", Tx.Rollback(), before=(Tx.Select(),)),
    # Exchanges
    Case(
        "new exchange",
        Exchange.Declare(exchange="new"),
        ((CREATE, "new", _exchange("configure", "new")),),
    ),
    Case(
        "exchange with an alternate",
        Exchange.Declare(exchange="new", arguments={"alternate-exchange": "y"}),
        (
            (CREATE, "new", _exchange("configure", "new")),
            (READ, "new", _exchange("read", "new")),
            (WRITE, "y", _exchange("write", "y")),
        ),
    ),
    Case(
        "exchange whose alternate is the default one",
        Exchange.Declare(exchange="new", arguments={"alternate-exchange": ""}),
        (
            (CREATE, "new", _exchange("configure", "new")),
            (READ, "new", _exchange("read", "new")),
            _ALL_QUEUES,
        ),
    ),
    Case(
        "exchange that is there",
        Exchange.Declare(exchange="x", exchange_type="fanout"),
        ((DESCRIBE, "x", _exchange("configure", "x")),),
    ),
    Case(
        "predeclared exchange",
        Exchange.Declare(exchange="amq.topic", exchange_type="topic", durable=True),
        ((DESCRIBE, "amq.topic", _exchange("configure", "amq.topic")),),
    ),
    Case(
        "look at an exchange",
        Exchange.Declare(exchange="x", passive=True),
        ((DESCRIBE, "x", _exchange("configure", "x")),),
    ),
    Case("delete an exchange", Exchange.Delete(exchange="x"), ((DELETE, "x", _exchange("configure", "x")),)),
    Case(
        "delete no exchange",
        Exchange.Delete(exchange="new"),
        ((DELETE, "new", _exchange("configure", "new")),),
    ),
    Case(
        "bind exchanges",
        Exchange.Bind(destination="x", source="y"),
        ((WRITE, "x", _exchange("write", "x")), (READ, "y", _exchange("read", "y"))),
    ),
    Case(
        "unbind exchanges",
        Exchange.Unbind(destination="x", source="y"),
        ((WRITE, "x", _exchange("write", "x")), (READ, "y", _exchange("read", "y"))),
    ),
    # Queues
    Case("new queue", Queue.Declare(queue="new"), (_TAKES_NEW,)),
    Case("own queue", _OWN),
    Case("queue that is exclusive but named", Queue.Declare(queue="new", exclusive=True), (_TAKES_NEW,)),
    Case(
        "queue with dead letters",
        Queue.Declare(queue="new", arguments={_DLX: "x"}),
        (_TAKES_NEW, (READ, "new", _queue("read", "new")), (WRITE, "x", _exchange("write", "x"))),
    ),
    Case(
        "queue with dead letters for a queue",
        Queue.Declare(queue="new", arguments={_DLX: "", _DLK: "q"}),
        (_TAKES_NEW, (READ, "new", _queue("read", "new")), (WRITE, "q", _queue("write", "q"))),
    ),
    Case(
        "queue with dead letters for whichever queue",
        Queue.Declare(queue="new", arguments={_DLX: ""}),
        (_TAKES_NEW, (READ, "new", _queue("read", "new")), _ALL_QUEUES),
    ),
    Case(
        "own queue with dead letters",
        Queue.Declare(exclusive=True, arguments={_DLX: "x"}),
        ((WRITE, "x", _exchange("write", "x")),),
    ),
    Case("queue that is there", Queue.Declare(queue="q"), ((DESCRIBE, "q", _queue("configure", "q")),)),
    Case(
        "look at a queue",
        Queue.Declare(queue="q", passive=True),
        ((DESCRIBE, "q", _queue("configure", "q")),),
    ),
    Case(
        "bind",
        Queue.Bind(queue="q", exchange="x"),
        ((WRITE, "q", _queue("write", "q")), (READ, "x", _exchange("read", "x"))),
    ),
    Case(
        "unbind",
        Queue.Unbind(queue="q", exchange="x"),
        ((WRITE, "q", _queue("write", "q")), (READ, "x", _exchange("read", "x"))),
    ),
    Case(
        "bind an own queue",
        Queue.Bind(queue="", exchange="amq.topic"),
        ((READ, "amq.topic", _exchange("read", "amq.topic")),),
        before=(_OWN,),
    ),
    Case("purge", Queue.Purge(queue="q"), ((READ, "q", _queue("read", "q")),)),
    Case("purge an own queue", Queue.Purge(queue=""), before=(_OWN,)),
    Case("delete a queue", Queue.Delete(queue="q"), ((DELETE, "q", _queue("configure", "q")),)),
    Case("delete no queue", Queue.Delete(queue="new"), ((DELETE, "new", _queue("configure", "new")),)),
    Case("delete an own queue", Queue.Delete(queue=""), before=(_OWN,)),
    # Messages
    Case("consume", Basic.Consume(queue="q"), ((READ, "q", _queue("read", "q")),)),
    Case("consume from an own queue", Basic.Consume(queue=""), before=(_OWN,)),
    Case("consume replies", Basic.Consume(queue="amq.rabbitmq.reply-to", no_ack=True)),
    Case("get", Basic.Get(queue="q"), ((READ, "q", _queue("read", "q")),)),
    Case("get from an own queue", Basic.Get(queue=""), before=(_OWN,)),
    Case("publish", Publish("x", "any"), ((WRITE, "x", _exchange("write", "x")),)),
    Case(
        "publish to a predeclared exchange",
        Publish("amq.topic", "any"),
        ((WRITE, "amq.topic", _exchange("write", "amq.topic")),),
    ),
    Case("publish to a queue", Publish("", "q"), ((WRITE, "q", _queue("write", "q")),)),
    Case("publish to no queue", Publish("", "new"), ((WRITE, "new", _queue("write", "new")),)),
    Case(
        "publish to an exchange, with copies",
        Publish("x", "any", properties={"headers": {"CC": ["q"], "BCC": ["q2"]}}),
        ((WRITE, "x", _exchange("write", "x")),),
    ),
    Case(
        "publish to several queues",
        Publish("", "q", properties={"headers": {"CC": ["q2"], "BCC": ["new"]}}),
        (
            (WRITE, "q", _queue("write", "q")),
            (WRITE, "q2", _queue("write", "q2")),
            (WRITE, "new", _queue("write", "new")),
        ),
    ),
    Case("reply", Publish("", "amq.rabbitmq.reply-to.nobody")),
    Case(
        "publish in a transaction",
        Publish("", "q"),
        ((WRITE, "q", _queue("write", "q")),),
        before=(Tx.Select(),),
    ),
]

WITHOUT_ANSWER = (Basic.Nack, Basic.Reject, Basic.RecoverAsync, Basic.CancelOk)
"""They are about deliveries that a channel has got already."""
