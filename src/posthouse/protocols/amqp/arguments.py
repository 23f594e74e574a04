"""The arguments of declarations and consumers: their types and limits, and the definitions they become.

One table for queues. The words for what is wrong are RabbitMQ's.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from posthouse.broker.funnel.limits import HIGHEST_CONCURRENCY
from posthouse.broker.queues.definition import OverflowPolicy
from posthouse.broker.routing.headers import MATCH_MODES
from posthouse.model.rates import HIGHEST, parse_rate
from posthouse.protocols.amqp.codec.errors import octets
from posthouse.protocols.amqp.codec.tables import Timestamp
from posthouse.protocols.amqp.codec.types import TYPE_NAMES, TYPED_NUMBERS
from posthouse.protocols.amqp.errors import precondition_failed

Arguments = Mapping[str, object]
Check = Callable[[object], str | None]
"""The fault of a value, or None."""

_LONGEST_MS: Final = 315_360_000_000
"""Ten years: RabbitMQ takes no longer times."""
_MAX_PRIORITY: Final = 255
QUEUE_TYPE: Final = "x-queue-type"
CLASSIC: Final = "classic"
QUORUM: Final = "quorum"
STREAM: Final = "stream"
_QUEUE_TYPES: Final = (CLASSIC, QUORUM, STREAM)
_LOCATORS: Final = ("client-local", "balanced", "random", "least-leaders")
_AGE = re.compile(r"([0-9]{1,12})([YMDhms])\Z")
_DAY_MS: Final = 86_400_000
_UNITS_MS: Final = {
    "Y": 365 * _DAY_MS,
    "M": 30 * _DAY_MS,
    "D": _DAY_MS,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1000,
}


def type_name(value: object) -> str:
    """As RabbitMQ calls it. Numbers that were stored, or came in other tables, are the widest."""
    return next(name for kind, name in _TYPE_NAMES if isinstance(value, kind))


_TYPE_NAMES: Final[tuple[tuple[type, str], ...]] = (
    (bool, "bool"),
    (Timestamp, "timestamp"),
    *((number, TYPE_NAMES[code]) for code, number in TYPED_NUMBERS.items()),
    (int, "long"),
    (float, "double"),
    (Decimal, "decimal"),
    (str, "longstr"),
    (bytes, "binary"),
    (list, "array"),
    (dict, "table"),
    (object, "void"),
)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool | Timestamp)


def integer(value: object) -> str | None:
    return None if _is_integer(value) else f'"expected integer, got {type_name(value)}"'


def _at_least(least: int, most: int | None = None, *, too_large: str = "value_too_large") -> Check:
    def check(value: object) -> str | None:
        if not isinstance(value, int) or not _is_integer(value):
            return integer(value)
        if value < 0:
            return f"{{value_negative,{value}}}"
        if value < least:
            return f"{{value_zero,{value}}}"
        return f"{{{too_large},{value}}}" if most is not None and value > most else None

    return check


def _boolean(value: object) -> str | None:
    return None if isinstance(value, bool) else f"{{unacceptable_type,{type_name(value)}}}"


def _text(value: object) -> str | None:
    return None if isinstance(value, str) else f"{{unacceptable_type,{type_name(value)}}}"


def _one_of(known: tuple[str, ...], otherwise: str) -> Check:
    def check(value: object) -> str | None:
        return _text(value) or (None if value in known else otherwise.format(value))

    return check


def _anything(value: object) -> None:
    return None


def age_ms(text: str) -> int | None:
    """Milliseconds of a time such as 7D or 1h; None where it is none."""
    found = _AGE.match(text)
    if found is None or not int(found[1]):
        return None
    return int(found[1]) * _UNITS_MS[found[2]]


def _age(value: object) -> str | None:
    return _text(value) or ("invalid_max_age" if age_ms(str(value)) is None else None)


def _rate(value: object) -> str | None:
    if isinstance(value, str):
        try:
            parse_rate(value)
        except ValueError as error:
            return f'"{error}"'
        return None
    return _at_least(1, int(HIGHEST))(value)


def rate_of(value: str | int) -> float:
    """Messages per second, of an argument that was checked."""
    return parse_rate(value) if isinstance(value, str) else float(value)


@dataclass(frozen=True, slots=True)
class QueueArgument:
    """`field` is the one of QueueDefinition that it sets; without, it is accepted and means nothing here."""

    check: Check
    field: str | None = None


QUEUE_ARGUMENTS: Final[Mapping[str, QueueArgument]] = {
    "x-expires": QueueArgument(_at_least(1, _LONGEST_MS), "expires_ms"),
    "x-message-ttl": QueueArgument(_at_least(0, _LONGEST_MS), "message_ttl_ms"),
    "x-max-length": QueueArgument(_at_least(0), "max_length"),
    "x-max-length-bytes": QueueArgument(_at_least(0), "max_bytes"),
    "x-overflow": QueueArgument(_one_of(tuple(OverflowPolicy), "invalid_overflow"), "overflow"),
    "x-dead-letter-exchange": QueueArgument(_text, "dead_letter_exchange"),
    "x-dead-letter-routing-key": QueueArgument(_text, "dead_letter_key"),
    "x-max-priority": QueueArgument(
        _at_least(0, _MAX_PRIORITY, too_large="max_value_exceeded"), "max_priority"
    ),
    "x-single-active-consumer": QueueArgument(_boolean, "single_active"),
    "x-delivery-limit": QueueArgument(_at_least(0), "delivery_limit"),
    "x-ordered-by-key": QueueArgument(_boolean, "ordered_by_key"),
    "x-max-age": QueueArgument(_age, "max_age_ms"),
    "x-stream-max-segment-size-bytes": QueueArgument(_at_least(0), "segment_bytes"),
    "x-posthouse-delivery-rate": QueueArgument(_rate, "delivery_rate"),
    "x-posthouse-delivery-concurrency": QueueArgument(
        _at_least(1, HIGHEST_CONCURRENCY), "delivery_concurrency"
    ),
    "x-initial-cluster-size": QueueArgument(_at_least(1)),
    QUEUE_TYPE: QueueArgument(_one_of(_QUEUE_TYPES, "\"unsupported queue type '{}'\"")),
    "x-queue-mode": QueueArgument(_one_of(("default", "lazy"), "\"unsupported queue mode '{}'\"")),
    "x-queue-version": QueueArgument(_at_least(0)),
    "x-queue-master-locator": QueueArgument(_anything),
    "x-queue-leader-locator": QueueArgument(_one_of(_LOCATORS, "invalid_queue_locator_arg")),
    "x-quorum-initial-group-size": QueueArgument(_at_least(1)),
    "x-dead-letter-strategy": QueueArgument(
        _one_of(("at-most-once", "at-least-once"), "invalid_dlx_strategy")
    ),
    "x-max-in-memory-length": QueueArgument(_at_least(0)),
    "x-max-in-memory-bytes": QueueArgument(_at_least(0)),
    "x-consumer-timeout": QueueArgument(_at_least(0)),
}
"""Others are ignored, as RabbitMQ ignores them."""


_OF_STREAMS: Final = frozenset(
    {"x-max-age", "x-stream-max-segment-size-bytes", "x-initial-cluster-size", "x-stream-offset"}
)
_STREAMS_TAKE: Final = _OF_STREAMS | {
    QUEUE_TYPE,
    "x-max-length-bytes",
    "x-queue-leader-locator",
    "x-consumer-timeout",
}
_NOT_FOR: Final[Mapping[str, frozenset[str]]] = {
    CLASSIC: _OF_STREAMS,
    QUORUM: _OF_STREAMS | {"x-max-priority"},
    STREAM: frozenset(QUEUE_ARGUMENTS) - _STREAMS_TAKE | {"x-priority"},
}
"""Arguments of queues and consumers that a type of queue does not have, and RabbitMQ refuses."""


def check_type_has(queue_type: object, arguments: Arguments, subject: str) -> None:
    """Raises where an argument is one of other types of queues."""
    for name in _NOT_FOR.get(str(queue_type), frozenset()):
        if name in arguments:
            raise precondition_failed(
                f"invalid arg '{name}' for {subject} of queue type rabbit_{queue_type}_queue"
            )


def check_queue_arguments(arguments: Arguments, subject: str) -> None:
    check_type_has(arguments.get(QUEUE_TYPE, CLASSIC), arguments, subject)
    for name, argument in QUEUE_ARGUMENTS.items():
        if name in arguments and (wrong := argument.check(arguments[name])) is not None:
            raise invalid(name, subject, wrong)
    if "x-dead-letter-routing-key" in arguments and "x-dead-letter-exchange" not in arguments:
        raise invalid("x-dead-letter-routing-key", subject, "routing_key_but_no_dlx_defined")


def invalid(name: str, subject: str, wrong: str) -> Exception:
    return precondition_failed(f"invalid arg '{name}' for {subject}: {wrong}")


def consumer_priority(arguments: Arguments, subject: str) -> int:
    priority = arguments.get("x-priority", 0)
    if (wrong := integer(priority)) is not None:
        raise invalid("x-priority", subject, wrong)
    assert isinstance(priority, int)
    return int(priority)


def check_match(arguments: Arguments) -> None:
    """Of a binding to a headers exchange."""
    mode = arguments.get("x-match", "all")
    if not isinstance(mode, str):
        raise precondition_failed(
            f"Invalid x-match field type {type_name(mode)} (value {shown(mode)}); expected longstr"
        )
    if mode not in MATCH_MODES:
        raise precondition_failed(
            f"Invalid x-match field value {octets(mode.encode())}; "
            "expected all, any, all-with-x, or any-with-x"
        )


def shown(value: object) -> str:
    """As Erlang shows the simple ones."""
    if isinstance(value, bool):
        return str(value).lower()
    return "undefined" if value is None else str(value)


def exchange_name(arguments: Arguments, name: str, subject: str) -> str | None:
    """The exchange that an argument names, None if it is not given."""
    if name not in arguments:
        return None
    value = arguments[name]
    if not isinstance(value, str):
        raise precondition_failed(f"invalid type '{type_name(value)}' for arg '{name}' in {subject}")
    return value
