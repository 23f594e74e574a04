"""Exchanges, bindings and what clients publish to them, for queues that are compared with a ledger."""

from hypothesis import strategies as st

from posthouse.broker.routing.definitions import ExchangeKind
from tests.broker.queues.queue_ledger import (
    QUEUES,
)

KINDS = {
    "fan": ExchangeKind.FANOUT,
    "by": ExchangeKind.DIRECT,
    "like": ExchangeKind.TOPIC,
    "marked": ExchangeKind.HEADERS,
    "dead": ExchangeKind.FANOUT,
}
BINDINGS: list[tuple[str, str, bytes, dict[str, object]]] = [
    ("fan", "plain", b"", {}),
    ("fan", "urgent", b"", {}),
    ("fan", "short", b"", {}),
    ("fan", "keyed", b"", {}),
    ("by", "plain", b"a", {}),
    ("by", "patient", b"a", {}),
    ("by", "hasty", b"b", {}),
    ("by", "refusing", b"b", {}),
    ("by", "blocking", b"c", {}),
    ("by", "burying", b"c", {}),
    ("by", "plain", b"c", {}),
    ("like", "urgent", b"x.*", {}),
    ("like", "hasty", b"x.*", {}),
    ("like", "short", b"#.z", {}),
    ("marked", "plain", b"", {"x-match": "all", "mark": "yes"}),
    ("marked", "keyed", b"", {"x-match": "all", "mark": "yes"}),
    ("dead", "graves", b"", {}),
]
ROUTES: list[tuple[str, bytes, bool, list[str]]] = [
    *(("", name.encode(), False, [name]) for name in QUEUES if name != "graves"),
    ("fan", b"", False, ["plain", "urgent", "short", "keyed"]),
    ("fan", b"k1", False, ["plain", "urgent", "short", "keyed"]),
    ("fan", b"k2", False, ["plain", "urgent", "short", "keyed"]),
    ("by", b"a", False, ["plain", "patient"]),
    ("by", b"b", False, ["hasty", "refusing"]),
    ("by", b"c", False, ["blocking", "burying", "plain"]),
    ("by", b"d", False, []),
    ("like", b"x.y", False, ["urgent", "hasty"]),
    ("like", b"x.z", False, ["urgent", "hasty", "short"]),
    ("like", b"z", False, ["short"]),
    ("marked", b"k1", True, ["plain", "keyed"]),
    ("marked", b"k1", False, []),
]
"""Exchange, key, whether it carries the mark, and the queues that get it."""

WINDOW = 6
names = st.sampled_from(list(QUEUES))
routes = st.sampled_from(ROUTES)
publishes = st.tuples(
    routes, st.integers(1, 5), st.integers(0, 3), st.sampled_from([None, None, None, 500, 60_000])
)
Publish = tuple[tuple[str, bytes, bool, list[str]], int, int, int | None]
"""A route, how many, their priority, and after how long they expire."""
