"""What a broker refuses, and in which words.

Steps are done one after the other on a new channel; the last of each is refused. Codes and words are those of
RabbitMQ 3.10, recorded from it.
"""

from typing import Any

from pamqp.commands import Basic, Channel, Confirm, Connection, Exchange, Queue, Tx

from tests.protocols.amqp.steps import Publish, argument, declare, quorum

LOCKED = (
    "cannot obtain exclusive access to locked queue 'r-d' in vhost '/'. It could be originally declared on "
    "another connection or the exclusive property value does not match that of the original declaration."
)

REFUSALS: list[tuple[str, list[Any], int, str]] = [
    (
        "headers binding with a bad x-match",
        [declare(), Queue.Bind(queue="r-q", exchange="amq.headers", arguments={"x-match": "some"})],
        406,
        'Invalid x-match field value <<"some">>; expected all, any, all-with-x, or any-with-x',
    ),
    (
        "publish with a bad expiration",
        [declare(), Publish(properties={"expiration": "soon"})],
        406,
        "invalid expiration 'soon': no_integer",
    ),
    (
        "publish with an expiration and a unit",
        [declare(), Publish(properties={"expiration": "5s"})],
        406,
        "invalid expiration '5s': {leftover_string,\"s\"}",
    ),
    (
        "publish with a negative expiration",
        [declare(), Publish(properties={"expiration": "-1"})],
        406,
        "invalid expiration '-1': {value_negative,-1}",
    ),
    (
        "publish with an expiration of more than ten years",
        [declare(), Publish(properties={"expiration": "315360000001"})],
        406,
        "invalid expiration '315360000001': {value_too_large,315360000001}",
    ),
    (
        "CC that is no list",
        [declare(), Publish(properties={"headers": {"CC": "other"}})],
        406,
        'invalid message: {unacceptable_type_in_header,"CC",longstr}',
    ),
    (
        "BCC of a number",
        [declare(), Publish(properties={"headers": {"BCC": 1}})],
        406,
        'invalid message: {unacceptable_type_in_header,"BCC",byte}',
    ),
    (
        "flow that is to stop",
        [Channel.Flow(False)],
        540,
        "active=false",
    ),
    (
        "passive declare of no queue",
        [Queue.Declare(queue="nope", passive=True)],
        404,
        "no queue 'nope' in vhost '/'",
    ),
    (
        "queue of a reserved name",
        [Queue.Declare(queue="amq.mine")],
        403,
        "queue name 'amq.mine' contains reserved prefix 'amq.*'",
    ),
    (
        "passive declare of no reserved queue",
        [Queue.Declare(queue="amq.mine", passive=True)],
        404,
        "no queue 'amq.mine' in vhost '/'",
    ),
    (
        "exclusive differs",
        [
            Queue.Declare(queue="r-d", auto_delete=True),
            Basic.Consume(queue="r-d"),
            Queue.Declare(queue="r-d", exclusive=True, auto_delete=True),
        ],
        405,
        LOCKED,
    ),
    (
        "ttl too large",
        [argument("x-message-ttl", 10**15)],
        406,
        "invalid arg 'x-message-ttl' for queue 'r-a' in vhost '/': {value_too_large,1000000000000000}",
    ),
    (
        "dead letter exchange of number",
        [argument("x-dead-letter-exchange", 1)],
        406,
        "invalid type 'byte' for arg 'x-dead-letter-exchange' in queue 'r-a' in vhost '/'",
    ),
    (
        "dead letter key of number",
        [declare({"x-dead-letter-routing-key": 1, "x-dead-letter-exchange": ""}, "r-a")],
        406,
        "invalid arg 'x-dead-letter-routing-key' for queue 'r-a' in vhost '/': {unacceptable_type,byte}",
    ),
    (
        "unknown queue type",
        [Queue.Declare(queue="r-t", durable=True, arguments={"x-queue-type": "fancy"})],
        406,
        "invalid arg 'x-queue-type' for queue 'r-t' in vhost '/': \"unsupported queue type 'fancy'\"",
    ),
    (
        "queue type of number",
        [Queue.Declare(queue="r-t", durable=True, arguments={"x-queue-type": 1})],
        406,
        "invalid arg 'x-queue-type' for queue 'r-t' in vhost '/': {unacceptable_type,byte}",
    ),
    (
        "exclusive quorum queue",
        [declare({"x-queue-type": "quorum"}, "r-t")],
        406,
        "invalid property 'exclusive-owner' for queue 'r-t' in vhost '/'",
    ),
    (
        "transient quorum queue",
        [Queue.Declare(queue="r-t", arguments={"x-queue-type": "quorum"})],
        406,
        "invalid property 'non-durable' for queue 'r-t' in vhost '/'",
    ),
    (
        "priority quorum queue",
        [quorum({"x-max-priority": 3})],
        406,
        "invalid arg 'x-max-priority' for queue 'r-t' in vhost '/' of queue type rabbit_quorum_queue",
    ),
    ("no last queue for get", [Basic.Get(queue="")], 404, "no previously declared queue"),
    (
        "no last queue for bind",
        [Queue.Bind(queue="", exchange="amq.direct")],
        404,
        "no previously declared queue",
    ),
    ("get of no queue", [Basic.Get(queue="nope")], 404, "no queue 'nope' in vhost '/'"),
    ("purge of no queue", [Queue.Purge(queue="nope")], 404, "no queue 'nope' in vhost '/'"),
    ("consume of no queue", [Basic.Consume(queue="nope")], 404, "no queue 'nope' in vhost '/'"),
    (
        "bind of no queue",
        [Queue.Bind(queue="nope", exchange="amq.direct", routing_key="k")],
        404,
        "no queue 'nope' in vhost '/'",
    ),
    (
        "bind to no exchange",
        [declare(), Queue.Bind(queue="r-q", exchange="nope", routing_key="k")],
        404,
        "no exchange 'nope' in vhost '/'",
    ),
    (
        "bind to the default exchange",
        [declare(), Queue.Bind(queue="r-q", exchange="", routing_key="k")],
        403,
        "operation not permitted on the default exchange",
    ),
    (
        "unbind from the default exchange",
        [declare(), Queue.Unbind(queue="r-q", exchange="", routing_key="k")],
        403,
        "operation not permitted on the default exchange",
    ),
    (
        "delete of a queue in use",
        [declare(), Basic.Consume(queue="r-q"), Queue.Delete(queue="r-q", if_unused=True)],
        406,
        "queue 'r-q' in vhost '/' in use",
    ),
    (
        "delete of a queue with messages",
        [
            declare(),
            Confirm.Select(),
            Publish(),
            Basic.Qos(prefetch_count=1),
            Queue.Delete(queue="r-q", if_empty=True),
        ],
        406,
        "queue 'r-q' in vhost '/' not empty",
    ),
    (
        "exclusive consume beside another",
        [declare(), Basic.Consume(queue="r-q"), Basic.Consume(queue="r-q", exclusive=True)],
        403,
        "queue 'r-q' in vhost '/' in exclusive use",
    ),
    (
        "consume beside an exclusive one",
        [declare(), Basic.Consume(queue="r-q", exclusive=True), Basic.Consume(queue="r-q")],
        403,
        "queue 'r-q' in vhost '/' in exclusive use",
    ),
    (
        "consumer tag twice",
        [
            declare(),
            Basic.Consume(queue="r-q", consumer_tag="c"),
            Basic.Consume(queue="r-q", consumer_tag="c"),
        ],
        530,
        "attempt to reuse consumer tag 'c'",
    ),
    (
        "consumer priority of text",
        [declare(), Basic.Consume(queue="r-q", arguments={"x-priority": "high"})],
        406,
        "invalid arg 'x-priority' for queue 'r-q' in vhost '/': \"expected integer, got longstr\"",
    ),
    (
        "unknown exchange type",
        [Exchange.Declare(exchange="r-x", exchange_type="fancy")],
        503,
        "unknown exchange type 'fancy'",
    ),
    (
        "passive declare of no exchange",
        [Exchange.Declare(exchange="nope", passive=True)],
        404,
        "no exchange 'nope' in vhost '/'",
    ),
    (
        "exchange of a reserved name",
        [Exchange.Declare(exchange="amq.mine", exchange_type="direct")],
        403,
        "exchange name 'amq.mine' contains reserved prefix 'amq.*'",
    ),
    (
        "declare of the default exchange",
        [Exchange.Declare(exchange="", exchange_type="direct")],
        403,
        "operation not permitted on the default exchange",
    ),
    (
        "passive declare of the default exchange",
        [Exchange.Declare(exchange="", passive=True)],
        403,
        "operation not permitted on the default exchange",
    ),
    (
        "alternate exchange of number",
        [Exchange.Declare(exchange="r-x", exchange_type="direct", arguments={"alternate-exchange": 5})],
        406,
        "invalid type 'byte' for arg 'alternate-exchange' in exchange 'r-x' in vhost '/'",
    ),
    (
        "delete of a system exchange",
        [Exchange.Delete(exchange="amq.direct")],
        403,
        "deletion of system exchange 'amq.direct' in vhost '/' not allowed",
    ),
    (
        "delete of the default exchange",
        [Exchange.Delete(exchange="")],
        403,
        "operation not permitted on the default exchange",
    ),
    (
        "delete of an exchange in use",
        [
            Exchange.Declare(exchange="r-u", exchange_type="fanout", auto_delete=True),
            declare(),
            Queue.Bind(queue="r-q", exchange="r-u"),
            Exchange.Delete(exchange="r-u", if_unused=True),
        ],
        406,
        "exchange 'r-u' in vhost '/' in use",
    ),
    (
        "exchange bind from no exchange",
        [Exchange.Bind(destination="amq.direct", source="nope")],
        404,
        "no exchange 'nope' in vhost '/'",
    ),
    (
        "exchange bind to no exchange",
        [Exchange.Bind(destination="nope", source="amq.direct")],
        404,
        "no exchange 'nope' in vhost '/'",
    ),
    (
        "exchange bind to the default exchange",
        [Exchange.Bind(destination="", source="amq.direct")],
        403,
        "operation not permitted on the default exchange",
    ),
    (
        "exchange bind from the default exchange",
        [Exchange.Bind(destination="amq.direct", source="")],
        403,
        "operation not permitted on the default exchange",
    ),
    ("publish to no exchange", [Publish("nope")], 404, "no exchange 'nope' in vhost '/'"),
    (
        "publish to an internal exchange",
        [
            Exchange.Declare(exchange="r-i", exchange_type="fanout", internal=True, auto_delete=True),
            declare(),
            Queue.Bind(queue="r-q", exchange="r-i"),
            Publish("r-i"),
        ],
        403,
        "cannot publish to internal exchange 'r-i' in vhost '/'",
    ),
    ("immediate publish", [Publish(immediate=True)], 540, "immediate=true"),
    (
        "publish as somebody else",
        [Publish(properties={"user_id": "root"})],
        406,
        "user_id property set to 'root' but authenticated user was 'guest'",
    ),
    ("prefetch size", [Basic.Qos(prefetch_size=1)], 540, "prefetch_size!=0 (1)"),
    ("recover without requeue", [Basic.Recover(requeue=False)], 540, "requeue=false"),
    ("ack of an unknown tag", [Basic.Ack(1)], 406, "unknown delivery tag 1"),
    ("ack of tag 0", [Basic.Ack(0)], 406, "unknown delivery tag 0"),
    ("multiple ack of an unknown tag", [Basic.Ack(7, True)], 406, "unknown delivery tag 7"),
    ("nack of an unknown tag", [Basic.Nack(9)], 406, "unknown delivery tag 9"),
    ("reject of an unknown tag", [Basic.Reject(9)], 406, "unknown delivery tag 9"),
    (
        "ack twice",
        [declare(), Confirm.Select(), Publish(), Basic.Get(queue="r-q"), Basic.Ack(1), Basic.Ack(1)],
        406,
        "unknown delivery tag 1",
    ),
    ("commit without tx", [Tx.Commit()], 406, "channel is not transactional"),
    ("rollback without tx", [Tx.Rollback()], 406, "channel is not transactional"),
    (
        "confirms on a tx channel",
        [Tx.Select(), Confirm.Select()],
        406,
        "cannot switch from tx to confirm mode",
    ),
    (
        "tx on a confirm channel",
        [Confirm.Select(), Tx.Select()],
        406,
        "cannot switch from confirm to tx mode",
    ),
    ("channel opened twice", [Channel.Open()], 504, "second 'channel.open' seen"),
    (
        "reply-to with acks",
        [Basic.Consume(queue="amq.rabbitmq.reply-to")],
        406,
        "reply consumer cannot acknowledge",
    ),
    (
        "reply-to twice",
        [
            Basic.Consume(queue="amq.rabbitmq.reply-to", no_ack=True),
            Basic.Consume(queue="amq.rabbitmq.reply-to", no_ack=True),
        ],
        406,
        "reply consumer already set",
    ),
    (
        "reply-to without consumer",
        [declare(), Publish(properties={"reply_to": "amq.rabbitmq.reply-to"})],
        406,
        "fast reply consumer does not exist",
    ),
    (
        "declare of an unknown reply queue",
        [Queue.Declare(queue="amq.rabbitmq.reply-to.nobody", passive=True)],
        404,
        "no queue 'amq.rabbitmq.reply-to.nobody' in vhost '/'",
    ),
    ("a method that only brokers send", [Queue.DeclareOk("q", 0, 0)], 503, "unimplemented method"),
    ("a connection method on a channel", [Connection.Blocked("x")], 503, "unimplemented method"),
]
"""Name, steps, reply code, explanation."""
