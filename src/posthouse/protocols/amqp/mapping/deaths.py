"""Dead letters: what the broker noted in `posthouse.deaths`, as the headers that AMQP consumers look at.

The note is JSON: a list, newest first, of objects with queue, reason, count, exchange, keys, time (seconds)
and, where the message had one, expiration.
"""

import json
from typing import Any

from posthouse.protocols.amqp.codec.tables import Timestamp
from posthouse.protocols.amqp.mapping.changes import set_headers, without_expiration

_EXPIRED = "expired"


def with_deaths(properties: bytes, note: bytes) -> bytes:
    """`properties` as they are where the note makes no sense: whoever writes to the log may have left it."""
    try:
        deaths = json.loads(note)
        entries = [_entry(death) for death in deaths]
        # An entry has the time of its first death. Of two in one second, the later in the list is older.
        first = min(reversed(entries), key=lambda entry: entry["time"])
        headers: dict[str, object] = {"x-death": entries}
        for which, entry in (("first", first), ("last", entries[0])):
            for name in ("queue", "reason", "exchange"):
                headers[f"x-{which}-death-{name}"] = entry[name]
        changed = set_headers(properties, headers)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return properties
    if any(entry["reason"] == _EXPIRED for entry in entries):
        return without_expiration(changed)
    return changed


def _entry(death: dict[str, Any]) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "count": int(death["count"]),
        "reason": str(death["reason"]),
        "queue": str(death["queue"]),
        "time": Timestamp(death["time"]),
        "exchange": str(death["exchange"]),
        "routing-keys": [str(key) for key in death["keys"]],
    }
    if death.get("expiration") is not None:
        entry["original-expiration"] = str(death["expiration"])
    return entry
