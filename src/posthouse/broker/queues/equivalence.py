"""Checks that a second declaration equals the existing definition."""

from collections.abc import Sequence

from posthouse.broker.queues.definition import QueueDefinition
from posthouse.broker.routing.definitions import ExchangeDefinition
from posthouse.model.errors import DefinitionMismatch

_OF_EXCHANGES: Sequence[str] = ("kind", "durable", "auto_delete", "internal", "alternate", "delayed")
_OF_QUEUES: Sequence[str] = (
    "durable",
    "exclusive",
    "auto_delete",
    "message_ttl_ms",
    "expires_ms",
    "max_length",
    "max_bytes",
    "overflow",
    "dead_letter_exchange",
    "dead_letter_key",
    "max_priority",
    "single_active",
    "delivery_limit",
    "delivery_rate",
    "delivery_concurrency",
    "ordered_by_key",
    "is_stream",
    "max_age_ms",
    "segment_bytes",
)


def check_same_exchange(known: ExchangeDefinition, wanted: ExchangeDefinition) -> None:
    """Raises DefinitionMismatch."""
    for name in _OF_EXCHANGES:
        _check_same("exchange", known.name, name, getattr(known, name), getattr(wanted, name))


def check_same_queue(known: QueueDefinition, wanted: QueueDefinition) -> None:
    """Raises DefinitionMismatch."""
    for name in _OF_QUEUES:
        _check_same("queue", known.name, name, getattr(known, name), getattr(wanted, name))


def _check_same(kind: str, name: str, field: str, known: object, wanted: object) -> None:
    if known != wanted:
        raise DefinitionMismatch(kind=kind, name=name, field=field, known=known, wanted=wanted)
