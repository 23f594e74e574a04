"""Declarations of clients as definitions of the broker, and the checks of both."""

from collections.abc import Callable
from typing import Any, Final

from pamqp.commands import Exchange, Queue

from posthouse.broker.queues.definition import OverflowPolicy, QueueDefinition
from posthouse.broker.routing.definitions import ExchangeDefinition, ExchangeKind
from posthouse.protocols.amqp.arguments import (
    CLASSIC,
    QUEUE_ARGUMENTS,
    QUEUE_TYPE,
    QUORUM,
    STREAM,
    Arguments,
    age_ms,
    check_queue_arguments,
    exchange_name,
    rate_of,
    type_name,
)
from posthouse.protocols.amqp.errors import Refused, command_invalid, precondition_failed

DELAYED: Final = "x-delayed-message"
_DELAYED_KIND: Final = "x-delayed-type"
_REPLICATED: Final = (QUORUM, STREAM)
"""Types of queues that RabbitMQ replicates."""
_ALTERNATE: Final = "alternate-exchange"

_CONVERTED: Final[dict[str, Callable[[Any], object]]] = {
    "overflow": OverflowPolicy,
    "max_age_ms": age_ms,
    "delivery_rate": rate_of,
}
_LARGEST_SEGMENT: Final = 3_000_000_000


def queue_definition(declare: Queue.Declare, name: str, subject: str) -> QueueDefinition:
    arguments: Arguments = declare.arguments or {}
    exchange_name(arguments, "x-dead-letter-exchange", subject)
    check_queue_arguments(arguments, subject)
    fields: dict[str, Any] = {}
    for argument, value in arguments.items():
        known = QUEUE_ARGUMENTS.get(argument)
        if known is not None and known.field is not None:
            fields[known.field] = _CONVERTED.get(known.field, _without_width)(value)
    return QueueDefinition(
        name=name,
        durable=bool(declare.durable) and not declare.exclusive,
        exclusive=bool(declare.exclusive),
        auto_delete=bool(declare.auto_delete),
        is_stream=arguments.get(QUEUE_TYPE) == STREAM,
        arguments=dict(arguments),
        **fields,
    )


def _without_width(value: object) -> object:
    """Only the arguments themselves remember how wide a number was sent."""
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def check_may_be_unnamed(declare: Queue.Declare) -> None:
    """Raises where the broker is to make up a name, and RabbitMQ would not."""
    queue_type = (declare.arguments or {}).get(QUEUE_TYPE)
    if queue_type in _REPLICATED:
        raise precondition_failed(f"Cannot declare a server-named queue for type rabbit_{queue_type}_queue")


def check_properties(definition: QueueDefinition, subject: str) -> None:
    """What RabbitMQ's quorum queues and streams cannot be. Ours could, but programs move back and forth."""
    if definition.arguments.get(QUEUE_TYPE) not in _REPLICATED:
        return
    for refused, word in (
        (definition.auto_delete, "auto-delete"),
        (definition.exclusive, "exclusive-owner"),
        (not definition.durable, "non-durable"),
    ):
        if refused:
            raise precondition_failed(f"invalid property '{word}' for {subject}")
    if definition.segment_bytes is not None and definition.segment_bytes > _LARGEST_SEGMENT:
        raise precondition_failed("Exceeded max value for x-stream-max-segment-size-bytes")


def check_same_queue(known: QueueDefinition, wanted: QueueDefinition, subject: str) -> None:
    _check_same("durable", known.durable, wanted.durable, subject)
    _check_same("auto_delete", known.auto_delete, wanted.auto_delete, subject)
    for name in QUEUE_ARGUMENTS:
        current, received = known.arguments.get(name), wanted.arguments.get(name)
        if name == QUEUE_TYPE and {current, received} == {None, CLASSIC}:
            continue
        _check_same_argument(name, current, received, subject)


def exchange_definition(declare: Exchange.Declare, subject: str) -> ExchangeDefinition:
    arguments: Arguments = declare.arguments or {}
    kind = declare.exchange_type
    if kind == DELAYED:
        given = arguments.get(_DELAYED_KIND)
        if not isinstance(given, str) or given not in set(ExchangeKind):
            raise precondition_failed("Invalid argument, 'x-delayed-type' must be an existing exchange type")
        kind = given
    elif kind not in set(ExchangeKind):
        raise command_invalid(f"unknown exchange type '{kind}'")
    return ExchangeDefinition(
        name=declare.exchange,
        kind=ExchangeKind(kind),
        durable=bool(declare.durable),
        auto_delete=bool(declare.auto_delete),
        internal=bool(declare.internal),
        alternate=exchange_name(arguments, _ALTERNATE, subject),
        delayed=declare.exchange_type == DELAYED,
        arguments=dict(arguments),
    )


def check_same_exchange(known: ExchangeDefinition, wanted: ExchangeDefinition, subject: str) -> None:
    _check_same("type", _type_of(known), _type_of(wanted), subject)
    _check_same("durable", known.durable, wanted.durable, subject)
    _check_same("auto_delete", known.auto_delete, wanted.auto_delete, subject)
    _check_same("internal", known.internal, wanted.internal, subject)
    for name in (_ALTERNATE, _DELAYED_KIND):
        _check_same_argument(name, known.arguments.get(name), wanted.arguments.get(name), subject)


def _type_of(definition: ExchangeDefinition) -> str:
    return DELAYED if definition.delayed else definition.kind.value


def _check_same(name: str, current: object, received: object, subject: str) -> None:
    if current != received:
        raise _inequivalent(name, _plain(current), _plain(received), subject)


def _check_same_argument(name: str, current: object, received: object, subject: str) -> None:
    if current == received:
        return
    if current is None or received is None:
        raise _inequivalent(name, _with_type(current), _with_type(received), subject)
    raise _inequivalent(name, _plain(current), _plain(received), subject)


def _inequivalent(name: str, current: str, received: str, subject: str) -> Refused:
    return precondition_failed(
        f"inequivalent arg '{name}' for {subject}: received {received} but current is {current}"
    )


def _plain(value: object) -> str:
    return f"'{str(value).lower() if isinstance(value, bool) else value}'"


def _with_type(value: object) -> str:
    return "none" if value is None else f"the value {_plain(value)} of type '{type_name(value)}'"
