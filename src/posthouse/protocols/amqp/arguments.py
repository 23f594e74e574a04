"""The arguments of declarations and consumers: what they must be, and what a broker's queue makes of them.

One table for queues. The words for what is wrong are RabbitMQ's.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from posthouse.broker.queues.definition import Overflow
from posthouse.protocols.amqp.codec.tables import Timestamp
from posthouse.protocols.amqp.errors import precondition_failed

Arguments = Mapping[str, object]
Check = Callable[[object], str | None]
"""What is wrong with a value, None if nothing is."""

_LONGEST_MS: Final = 315_360_000_000
"""Ten years: RabbitMQ takes no longer times."""
_MAX_PRIORITY: Final = 255
_QUEUE_TYPES: Final = ("classic", "quorum")
STREAM: Final = "stream"


def type_name(value: object) -> str:
    """As AMQP calls it. Integers have many widths there; which one it was is not known any more."""
    return next(name for kind, name in _TYPE_NAMES if isinstance(value, kind))


_TYPE_NAMES: Final[tuple[tuple[type, str], ...]] = (
    (bool, "bool"),
    (Timestamp, "timestamp"),
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
    "x-overflow": QueueArgument(_one_of(tuple(Overflow), "invalid_overflow"), "overflow"),
    "x-dead-letter-exchange": QueueArgument(_text, "dead_letter_exchange"),
    "x-dead-letter-routing-key": QueueArgument(_text, "dead_letter_key"),
    "x-max-priority": QueueArgument(
        _at_least(0, _MAX_PRIORITY, too_large="max_value_exceeded"), "max_priority"
    ),
    "x-single-active-consumer": QueueArgument(_boolean, "single_active"),
    "x-delivery-limit": QueueArgument(_at_least(0), "delivery_limit"),
    "x-ordered-by-key": QueueArgument(_boolean, "ordered_by_key"),
    "x-queue-type": QueueArgument(_one_of(_QUEUE_TYPES, "\"unsupported queue type '{}'\"")),
    "x-queue-mode": QueueArgument(_one_of(("default", "lazy"), "\"unsupported queue mode '{}'\"")),
    "x-queue-version": QueueArgument(_at_least(0)),
    "x-queue-master-locator": QueueArgument(_text),
    "x-queue-leader-locator": QueueArgument(_text),
    "x-quorum-initial-group-size": QueueArgument(_at_least(1)),
    "x-dead-letter-strategy": QueueArgument(
        _one_of(("at-most-once", "at-least-once"), "invalid_dlx_strategy")
    ),
    "x-max-in-memory-length": QueueArgument(_at_least(0)),
    "x-max-in-memory-bytes": QueueArgument(_at_least(0)),
    "x-consumer-timeout": QueueArgument(_at_least(0)),
}
"""Others are ignored, as RabbitMQ ignores them."""


def check_queue_arguments(arguments: Arguments, subject: str) -> None:
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
    return priority


def exchange_name(arguments: Arguments, name: str, subject: str) -> str | None:
    """The exchange that an argument names, None if it is not given."""
    value = arguments.get(name)
    if value is not None and not isinstance(value, str):
        raise precondition_failed(f"invalid type '{type_name(value)}' for arg '{name}' in {subject}")
    return value
