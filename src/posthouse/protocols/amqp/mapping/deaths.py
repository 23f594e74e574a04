"""Dead letters: what the broker noted in `posthouse.deaths`, as the headers that AMQP consumers look at.

The note is JSON: a list, newest first, of objects with queue, reason, count, exchange, keys, time (seconds),
expiration (as the publisher gave it, null for none), and `rekeyed` where the queue gave the message another
key. Entries that a publisher told of have only what it told; those of older brokers have no expiration.
"""

import json
from collections.abc import Mapping
from typing import Any

from posthouse.protocols.amqp.codec.tables import Table, Timestamp
from posthouse.protocols.amqp.mapping.changes import REMOVE, set_headers, without_expiration
from posthouse.protocols.amqp.mapping.envelopes import COPY_KEYS
from posthouse.protocols.amqp.mapping.errors import PropertyError
from posthouse.protocols.amqp.mapping.properties import Properties, parse

_DEATHS = "x-death"
_NO_ANSWERS: Mapping[str, str] = {}


def with_deaths(properties: bytes, note: bytes, answers: Mapping[str, str] = _NO_ANSWERS) -> bytes:
    """`answers` are further headers: what a webhook noted. Unchanged where `properties` or the note cannot be
    decoded: Kafka producers may write any headers."""
    try:
        deaths = json.loads(note)
        published = parse(properties)
        entries = [_entry(death) for death in deaths]
        headers: dict[str, object] = {_DEATHS: entries}
        if any(death.get("rekeyed") for death in deaths):
            headers[COPY_KEYS] = REMOVE  # the queue gave it another key: it is routed by that alone
        if not any("expiration" in death for death in deaths):
            _tell_expiration(entries, published)
        if _DEATHS not in published.headers:
            headers |= _death_headers("first", _first(entries))
        headers |= _death_headers("last", entries[0])
        headers |= answers
        return without_expiration(set_headers(properties, headers))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError, AttributeError, PropertyError):
        return properties


def _first(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """An entry has the time of its first death. Of two in one second, the later in the list is older."""
    return min(reversed(entries), key=lambda entry: entry["time"])


def _death_headers(which: str, entry: dict[str, Any]) -> dict[str, object]:
    return {
        f"x-{which}-death-{name}": entry[name] for name in ("queue", "reason", "exchange") if name in entry
    }


def _tell_expiration(entries: list[dict[str, Any]], published: Properties) -> None:
    if published.expiration is not None:
        _first(entries)["original-expiration"] = published.expiration.decode()


def _entry(death: dict[str, Any]) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "count": int(death["count"]),
        "reason": str(death["reason"]),
        "queue": str(death["queue"]),
    }
    if "time" in death:
        entry["time"] = Timestamp(death["time"])
    if "exchange" in death:
        entry["exchange"] = str(death["exchange"])
    if "keys" in death:
        entry["routing-keys"] = [str(key) for key in death["keys"]]
    if death.get("expiration") is not None:
        entry["original-expiration"] = str(death["expiration"])
    return entry


def told_deaths(headers: Table) -> tuple[dict[str, object], ...]:
    """What a publisher tells of earlier deaths, in the form of the note."""
    told = headers.get(_DEATHS)
    if not isinstance(told, list):
        return ()
    return tuple(
        _noted(entry)
        for entry in told
        if isinstance(entry, dict)
        and isinstance(entry.get("queue"), str)
        and isinstance(entry.get("reason"), str)
    )


def _noted(entry: dict[str, Any]) -> dict[str, object]:
    count, expiration = entry.get("count"), entry.get("original-expiration")
    noted: dict[str, object] = {
        "queue": entry["queue"],
        "reason": entry["reason"],
        "count": count if isinstance(count, int) else 0,
        "expiration": expiration if isinstance(expiration, str) else None,
    }
    if isinstance(entry.get("time"), int):
        noted["time"] = entry["time"]
    if isinstance(entry.get("exchange"), str):
        noted["exchange"] = entry["exchange"]
    if isinstance(keys := entry.get("routing-keys"), list):
        noted["keys"] = [str(key) for key in keys]
    return noted
