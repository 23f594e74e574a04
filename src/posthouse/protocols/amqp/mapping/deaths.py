"""Dead letters: what the broker noted in `posthouse.deaths`, as the headers that AMQP consumers look at.

The note is JSON: a list, newest first, of objects with queue, reason, count, exchange, keys, time (seconds),
and `rekeyed` where the queue gave the message another key.
"""

import json
from typing import Any

from posthouse.protocols.amqp.codec.tables import Timestamp
from posthouse.protocols.amqp.mapping.changes import REMOVE, set_headers, without_expiration
from posthouse.protocols.amqp.mapping.envelopes import COPY_KEYS
from posthouse.protocols.amqp.mapping.errors import PropertyError
from posthouse.protocols.amqp.mapping.properties import parse


def with_deaths(properties: bytes, note: bytes) -> bytes:
    """`properties` as they are where they or the note make no sense: whoever writes to the log may have left
    them."""
    try:
        deaths = json.loads(note)
        entries = [_entry(death) for death in deaths]
        # An entry has the time of its first death. Of two in one second, the later in the list is older.
        first = min(reversed(entries), key=lambda entry: entry["time"])
        # A message that died does not expire any more, and its first death tells when it would have.
        expiration = parse(properties).expiration
        if expiration is not None:
            first["original-expiration"] = expiration.decode()
        headers: dict[str, object] = {"x-death": entries}
        if any(death.get("rekeyed") for death in deaths):
            headers[COPY_KEYS] = REMOVE  # its queue gave it another key: it goes by that alone
        for which, entry in (("first", first), ("last", entries[0])):
            for name in ("queue", "reason", "exchange"):
                headers[f"x-{which}-death-{name}"] = entry[name]
        return without_expiration(set_headers(properties, headers))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError, PropertyError):
        return properties


def _entry(death: dict[str, Any]) -> dict[str, Any]:
    return {
        "count": int(death["count"]),
        "reason": str(death["reason"]),
        "queue": str(death["queue"]),
        "time": Timestamp(death["time"]),
        "exchange": str(death["exchange"]),
        "routing-keys": [str(key) for key in death["keys"]],
    }
