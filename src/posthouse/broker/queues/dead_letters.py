"""Dead letters: a copy of a message for another exchange, with the history of its deaths.

The record header `posthouse.deaths` has the history as JSON, the newest first: one entry for each queue and
reason, with a count. Earlier deaths that the publisher sends in `x-death` are continued: applications that
publish a dead letter again with its headers end their retries by that count. A dead letter is not routed to a
queue where it died before, unless a consumer rejected it since: that would be an endless cycle.
"""

import json
import logging
from enum import StrEnum
from typing import Any, Protocol

from posthouse.broker.queues.attributes import Attributes
from posthouse.broker.queues.definition import QueueDefinition
from posthouse.broker.queues.envelope import Envelope
from posthouse.broker.queues.message import Message
from posthouse.broker.queues.publishing import Wave
from posthouse.broker.queues.record_headers import DEATHS, EXCHANGE
from posthouse.broker.routing.exchange import Exchange
from posthouse.model.errors import CorruptBatch, QueueFull, RecordTooLarge, UnknownExchange
from posthouse.records.header_section import decode_section, encode_section

log = logging.getLogger(__name__)

_MAX_COUNT = 2**63 - 2


class DeathReason(StrEnum):
    REJECTED = "rejected"
    EXPIRED = "expired"
    TOO_LONG = "maxlen"
    DELIVERY_LIMIT = "delivery_limit"


class Routing(Protocol):
    """The namespace, as far as dead letters need it."""

    def exchange(self, name: str) -> Exchange:
        """Raises UnknownExchange."""

    def publish(
        self,
        exchange: Exchange,
        key: bytes,
        value: bytes,
        envelope: Envelope,
        wave: Wave,
        *,
        barred: frozenset[str] = frozenset(),
        waits: bool = True,
    ) -> bool: ...

    def attributes_of(self, headers: bytes) -> Attributes:
        """The attributes that routing matches, of a message that is in the log already."""

    def exchange_of(self, message: Message) -> str:
        """The name of the exchange that it was published to."""


def publish_dead_letter(
    routing: Routing,
    definition: QueueDefinition,
    message: Message,
    reason: DeathReason,
    now_ms: int,
    wave: Wave,
) -> None:
    """Add the copy to the wave, unless the dead-letter exchange does not exist."""
    assert definition.dead_letter_exchange is not None and message.value is not None
    try:
        exchange = routing.exchange(definition.dead_letter_exchange)
    except UnknownExchange:
        return
    key = (message.key or b"") if definition.dead_letter_key is None else definition.dead_letter_key.encode()
    try:
        headers = decode_section(message.headers)
    except CorruptBatch:
        headers = []
    attributes = routing.attributes_of(message.headers)
    earlier = noted_deaths(headers)
    is_first = earlier is None
    if earlier is None:
        earlier = [dict(death) for death in attributes.deaths]
    more_keys = attributes.more_keys if not any(death.get("rekeyed") for death in earlier) else ()
    # Dead letters do not expire by a time of their own any more; the first death tells what it was.
    expiration = attributes.expiration if is_first else None
    deaths = _counted_again(earlier, definition.name, reason)
    if deaths is None:
        deaths = [_death(routing, definition, message, more_keys, reason, now_ms, expiration), *earlier]
    headers = [(name, value) for name, value in headers if name not in (DEATHS, EXCHANGE)]
    headers.insert(0, (EXCHANGE, exchange.name.encode()))
    headers.append((DEATHS, json.dumps(deaths).encode()))
    envelope = Envelope(
        headers=encode_section(headers),
        attributes=attributes.headers,
        priority=attributes.priority,
        more_keys=more_keys if definition.dead_letter_key is None else (),
    )
    barred = _barred(deaths) if reason is not DeathReason.REJECTED else frozenset[str]()
    try:
        routing.publish(exchange, key, message.value, envelope, wave, barred=barred, waits=False)
    except (QueueFull, RecordTooLarge) as error:
        log.warning("%s: a dead letter was refused: %s", message.queue, error)


def noted_deaths(headers: list[tuple[bytes, bytes | None]]) -> list[dict[str, Any]] | None:
    """None where the broker has noted none yet."""
    for name, value in headers:
        if name == DEATHS:
            try:
                deaths = json.loads(value or b"[]")
            except (ValueError, RecursionError):
                return []
            return [death for death in deaths if isinstance(death, dict)] if isinstance(deaths, list) else []
    return None


def _counted_again(
    deaths: list[dict[str, Any]], queue: str, reason: DeathReason
) -> list[dict[str, Any]] | None:
    """None where it never died in this queue for this reason."""
    for death in deaths:
        if death.get("queue") == queue and death.get("reason") == reason:
            again = {**death, "count": _count_of(death) + 1}
            return [again, *(other for other in deaths if other is not death)]
    return None


def _death(
    routing: Routing,
    definition: QueueDefinition,
    message: Message,
    more_keys: tuple[bytes, ...],
    reason: DeathReason,
    now_ms: int,
    expiration: str | None,
) -> dict[str, Any]:
    death: dict[str, Any] = {
        "queue": definition.name,
        "reason": reason,
        "count": 1,
        "exchange": routing.exchange_of(message),
        "keys": [key.decode(errors="replace") for key in (message.key or b"", *more_keys)],
        "time": now_ms // 1000,
        "expiration": expiration,
    }
    if definition.dead_letter_key is not None:
        death["rekeyed"] = True  # from now on it is routed by that key alone
    return death


def _count_of(death: dict[str, Any]) -> int:
    """The count as the publisher sent it: any value is possible, and the next one must fit 64 bits."""
    count = death.get("count")
    return min(count, _MAX_COUNT) if isinstance(count, int) else 0


def _barred(deaths: list[dict[str, Any]]) -> frozenset[str]:
    """The queues that it has died in since a consumer last rejected it."""
    barred = set()
    for death in deaths:
        if death.get("reason") == DeathReason.REJECTED:
            break
        barred.add(str(death.get("queue")))
    return frozenset(barred)
