"""The router by example: each rule of routing once, in words."""

import weakref
from collections.abc import Mapping

import pytest

from posthouse.broker.routing.definitions import Binding, ExchangeDefinition, ExchangeKind
from posthouse.broker.routing.exchange import Exchange
from posthouse.broker.routing.router import Router
from posthouse.model.errors import AccessRefused, InvalidDefinition, UnknownExchange, UnknownQueue
from tests.broker.routing.naive import Mailbox

DIRECT, FANOUT, TOPIC, HEADERS = ExchangeKind


class Place:
    """A router with short names for what tests do to it."""

    def __init__(self, *queues: str, most_routes: int = 10_000) -> None:
        self.router: Router[Mailbox] = Router(most_routes)
        for name in queues:
            self.router.add_queue(name, Mailbox(name))

    def exchange(self, name: str, kind: ExchangeKind = DIRECT, alternate: str | None = None) -> Exchange:
        return self.router.declare(ExchangeDefinition(name=name, kind=kind, alternate=alternate))

    def bind(
        self, source: str, queue: str, key: bytes = b"", arguments: Mapping[str, object] | None = None
    ) -> Binding:
        binding = Binding(source=source, destination=queue, key=key, arguments=arguments or {})
        assert self.router.bind(binding)
        return binding

    def join(self, source: str, destination: str, key: bytes = b"") -> Binding:
        binding = Binding(source=source, destination=destination, to_exchange=True, key=key)
        assert self.router.bind(binding)
        return binding

    def route(
        self, exchange: str, key: bytes = b"", headers: Mapping[str, object] | None = None
    ) -> list[str]:
        found = self.router.route(
            self.router.exchange(exchange), key, None if headers is None else lambda: headers
        )
        return [queue.name for queue in found]


def test_the_default_exchange_knows_every_queue_by_name() -> None:
    place = Place("a", "grüße")
    assert place.router.exchange("") is place.router.default
    assert place.route("", b"a") == ["a"]
    assert place.route("", "grüße".encode()) == ["grüße"]
    assert place.route("", b"b") == []
    place.router.add_queue("b", Mailbox("b"))
    assert place.route("", b"b") == ["b"]
    place.router.remove_queue("b")
    assert place.route("", b"b") == []
    assert place.router.bindings() == []


def test_the_default_exchange_is_not_for_binding() -> None:
    place = Place("a")
    place.exchange("x")
    for binding in (
        Binding(source="", destination="a", key=b"k"),
        Binding(source="", destination="x", to_exchange=True),
        Binding(source="x", destination="", to_exchange=True),
    ):
        with pytest.raises(AccessRefused):
            place.router.bind(binding)
        with pytest.raises(AccessRefused):
            place.router.unbind(binding)
    with pytest.raises(AccessRefused):
        place.router.delete("")


def test_direct() -> None:
    place = Place("a", "b", "c")
    place.exchange("x")
    place.bind("x", "a", b"red")
    place.bind("x", "b", b"red")
    place.bind("x", "c", b"green")
    assert place.route("x", b"red") == ["a", "b"]
    assert place.route("x", b"green") == ["c"]
    assert place.route("x", b"re") == []


def test_fanout() -> None:
    place = Place("a", "b")
    place.exchange("x", FANOUT)
    place.bind("x", "b", b"ignored")
    place.bind("x", "a")
    assert place.route("x", b"any") == place.route("x", b"other") == ["b", "a"]


def test_topic() -> None:
    place = Place("a", "b", "c")
    place.exchange("x", TOPIC)
    place.bind("x", "a", b"stock.#")
    place.bind("x", "b", b"*.nyse")
    place.bind("x", "a", b"#.ibm")
    assert place.route("x", b"stock.nyse") == ["a", "b"]
    assert place.route("x", b"stock.nyse.ibm") == ["a"]
    assert place.route("x", b"bond") == []


def test_headers_are_asked_for_once_and_only_where_they_matter() -> None:
    place = Place("a", "b")
    direct = place.exchange("x")
    headers = place.exchange("h", HEADERS)
    place.exchange("h2", HEADERS)
    place.bind("x", "a", b"k")
    place.bind("h", "a", arguments={"kind": "order"})
    place.join("h", "h2")
    place.bind("h2", "b")
    calls = []

    def table() -> Mapping[str, object]:
        calls.append(1)
        return {"kind": "order"}

    assert [queue.name for queue in place.router.route(direct, b"k", table)] == ["a"]
    assert calls == []
    assert [queue.name for queue in place.router.route(headers, b"k", table)] == ["a", "b"]
    assert calls == [1]
    assert place.route("h", headers={"kind": "offer"}) == ["b"]
    assert place.route("h") == ["b"]


def test_a_queue_is_there_once_however_often_it_is_bound() -> None:
    place = Place("a", "b")
    for name in ("x", "y"):
        place.exchange(name, TOPIC)
    place.bind("x", "b", b"#")
    place.bind("x", "a", b"*")
    place.bind("x", "b", b"k")
    place.join("x", "y", b"#")
    place.bind("y", "a", b"k")
    assert place.route("x", b"k") == ["b", "a"]


def test_exchanges_bound_to_exchanges() -> None:
    """The key goes along; each exchange decides in its own way."""
    place = Place("a", "b", "c", "d")
    place.exchange("x", FANOUT)
    place.exchange("y", TOPIC)
    place.exchange("z", DIRECT)
    place.join("x", "y")
    place.bind("x", "d")
    place.join("y", "z", b"*.k")
    place.bind("y", "a", b"a.#")
    place.bind("z", "b", b"a.k")
    place.bind("z", "c", b"a")
    assert place.route("x", b"a.k") == ["d", "a", "b"]
    assert place.route("x", b"a") == ["d", "a"]
    assert place.route("z", b"a") == ["c"]


def test_circles_end() -> None:
    place = Place("a", "b")
    for name in ("x", "y", "z"):
        place.exchange(name, FANOUT)
    place.join("x", "x")
    place.join("x", "y")
    place.join("y", "z")
    place.join("z", "x")
    assert place.route("x") == []
    place.bind("z", "a")
    place.bind("x", "b")
    assert place.route("x") == ["b", "a"]
    assert place.route("z") == ["a", "b"]


def test_a_long_chain_is_no_recursion() -> None:
    place = Place("a")
    for number in range(5000):
        place.exchange(f"x{number}", FANOUT, alternate=f"x{number + 1}")
    for number in range(0, 4998, 2):
        place.join(f"x{number}", f"x{number + 1}")
    place.bind("x4999", "a")
    assert place.route("x0") == ["a"]


def test_the_alternate_takes_what_matches_nothing() -> None:
    place = Place("a", "b", "c")
    place.exchange("x", alternate="rest")
    place.bind("x", "a", b"k")
    assert place.route("x", b"other") == []  # there is no such exchange yet
    place.exchange("rest", alternate="last")
    place.bind("rest", "b", b"other")
    assert place.route("x", b"k") == ["a"]
    assert place.route("x", b"other") == ["b"]
    place.exchange("last", FANOUT, alternate="x")
    assert place.route("x", b"none") == []
    place.bind("last", "c")
    assert place.route("x", b"none") == ["c"]
    assert place.route("x", b"other") == ["b"]
    place.router.delete("rest")
    assert place.route("x", b"other") == []


def test_an_alternate_that_comes_late_may_lead_on_at_once() -> None:
    place = Place("a")
    place.exchange("x", alternate="rest")
    place.exchange("last", FANOUT)
    place.bind("last", "a")
    assert place.route("x") == []
    place.exchange("rest", alternate="last")
    assert place.route("x") == ["a"]


def test_circles_of_alternates_end() -> None:
    place = Place("a")
    place.exchange("x", alternate="y")
    place.exchange("y", alternate="x")
    place.exchange("z", alternate="z")
    place.bind("y", "a", b"k")
    assert place.route("x", b"k") == ["a"]
    assert place.route("x", b"other") == place.route("z", b"other") == []


def test_an_exchange_further_on_has_its_own_alternate() -> None:
    """As in RabbitMQ: what counts is whether the exchange had a match, not whether a queue was reached."""
    place = Place("a", "b", "c")
    place.exchange("x", FANOUT, alternate="unused")
    place.exchange("unused", FANOUT)
    place.bind("unused", "c")
    place.exchange("y", alternate="rest")
    place.exchange("rest", FANOUT)
    place.bind("rest", "b")
    place.join("x", "y")
    assert place.route("x", b"k") == ["b"]
    place.bind("x", "a")
    assert place.route("x", b"k") == ["a", "b"]
    place.bind("y", "a", b"k")
    assert place.route("x", b"k") == ["a"]


def test_the_same_binding_is_one() -> None:
    place = Place("a")
    place.exchange("x", HEADERS)
    router = place.router
    one = place.bind("x", "a", b"k", {"n": 1, "m": 2})
    again = Binding(source="x", destination="a", key=b"k", arguments={"m": 2, "n": 1})
    assert not router.bind(again)
    others = [
        Binding(source="x", destination="a", key=b"k", arguments={"m": 2, "n": True}),
        Binding(source="x", destination="a", key=b"k", arguments={"m": 2, "n": 1.0}),
        Binding(source="x", destination="a", key=b"k", arguments={"m": 2}),
        Binding(source="x", destination="a", key=b"l", arguments={"m": 2, "n": 1}),
    ]
    for binding in others:
        assert router.bind(binding)
    assert router.unbind(again)
    assert not router.unbind(one)
    assert [id(each) for each in router.bindings(source="x")] == [id(each) for each in others]


def test_unbinding_takes_exactly_that_one() -> None:
    place = Place("a")
    place.exchange("x", TOPIC)
    first = place.bind("x", "a", b"a.#")
    second = place.bind("x", "a", b"#.b")
    third = place.bind("x", "a", b"a.#", {"note": "no meaning here"})
    assert not place.router.unbind(Binding(source="x", destination="a", key=b"#"))
    assert not place.router.unbind(Binding(source="nowhere", destination="a"))
    assert place.router.unbind(first)
    assert place.route("x", b"a") == place.route("x", b"b") == ["a"]
    assert place.router.unbind(third)
    assert place.route("x", b"a") == []
    assert place.route("x", b"b") == ["a"]
    assert place.router.exchange("x").is_used
    assert place.router.unbind(second)
    assert not place.router.exchange("x").is_used


def test_what_is_not_there() -> None:
    place = Place("a")
    place.exchange("x")
    with pytest.raises(UnknownExchange):
        place.router.exchange("y")
    with pytest.raises(UnknownExchange):
        place.router.delete("y")
    with pytest.raises(UnknownExchange):
        place.router.bind(Binding(source="y", destination="a"))
    with pytest.raises(UnknownExchange):
        place.router.bind(Binding(source="x", destination="y", to_exchange=True))
    with pytest.raises(UnknownQueue):
        place.router.bind(Binding(source="x", destination="b"))
    with pytest.raises(UnknownQueue):
        place.router.remove_queue("b")
    assert place.router.bindings(source="y") == place.router.bindings(destination="b") == []


def test_what_is_there_already() -> None:
    place = Place("a")
    place.exchange("x")
    with pytest.raises(ValueError, match="exists"):
        place.exchange("x", FANOUT)
    with pytest.raises(ValueError, match="exists"):
        place.exchange("")
    with pytest.raises(ValueError, match="exists"):
        place.router.add_queue("a", Mailbox("a"))


def test_a_refused_binding_leaves_no_trace() -> None:
    place = Place("a")
    place.exchange("h", HEADERS)
    with pytest.raises(InvalidDefinition):
        place.bind("h", "a", arguments={"x-match": "most"})
    with pytest.raises(InvalidDefinition):
        place.bind("h", "a", arguments={"a": object()})
    assert place.router.bindings() == place.router.remove_queue("a") == []
    assert not place.router.exchange("h").is_used


def test_a_queue_takes_its_bindings_along() -> None:
    place = Place("a", "b")
    place.exchange("x", TOPIC)
    place.exchange("a")  # may have the name of a queue
    first = place.bind("x", "a", b"k")
    kept = place.bind("x", "b", b"k")
    joined = place.join("x", "a", b"k")
    second = place.bind("x", "a", b"#")
    assert place.router.bindings(destination="a") == [first, second]
    assert place.router.bindings(destination="a", to_exchange=True) == [joined]
    assert place.router.remove_queue("a") == [first, second]
    assert place.router.bindings() == [kept, joined]
    assert place.route("x", b"k") == ["b"]


def test_an_exchange_takes_its_bindings_along() -> None:
    place = Place("a", "b")
    for name in ("x", "y", "z"):
        place.exchange(name, FANOUT)
    incoming = place.join("x", "y")
    circle = place.join("y", "y")
    outgoing = place.join("y", "z")
    kept = place.bind("x", "a")
    queued = place.bind("y", "b")
    assert place.router.delete("y") == [incoming, circle, outgoing, queued]
    assert place.router.bindings() == [kept]
    assert place.router.bindings(destination="z", to_exchange=True) == []
    assert place.route("x") == ["a"]
    assert [exchange.name for exchange in place.router.exchanges()] == ["", "x", "z"]


def test_a_deleted_exchange_routes_nothing_more() -> None:
    place = Place("a")
    place.exchange("rest", FANOUT)
    place.bind("rest", "a")
    old = place.exchange("x", FANOUT, alternate="rest")
    assert place.route("x") == ["a"]
    place.router.delete("x")
    assert old.is_deleted
    with pytest.raises(UnknownExchange):
        place.router.route(old, b"")
    new = place.exchange("x", FANOUT, alternate="rest")
    assert place.route("x") == ["a"]
    assert new is not old
    with pytest.raises(UnknownExchange):
        place.router.route(old, b"")


def test_bindings_by_both_ends() -> None:
    place = Place("a", "b")
    place.exchange("x")
    place.exchange("y")
    one = place.bind("x", "a", b"1")
    two = place.bind("x", "b", b"2")
    three = place.bind("y", "a", b"3")
    assert place.router.bindings(source="x") == [one, two]
    assert place.router.bindings(destination="a") == [one, three]
    assert place.router.bindings(source="y", destination="a") == [three]
    assert place.router.bindings() == [one, two, three]


def test_the_owner_may_leave_something() -> None:
    exchange = Place().exchange("x")
    assert exchange.data is None
    exchange.data = "a topic"
    assert exchange.data == "a topic"
    assert "direct exchange 'x'" in repr(exchange)


def test_equal_routes_are_the_same_object() -> None:
    place = Place("a", "b")
    topic, fanout, headers = (
        place.exchange("t", TOPIC),
        place.exchange("f", FANOUT),
        place.exchange("h", HEADERS),
    )
    for name in ("t", "f", "h"):
        place.bind(name, "a", b"#")
        place.bind(name, "b", b"#")
    route = place.router.route
    one = route(topic, b"one")
    assert len(one) == 2
    assert route(topic, b"one") is one
    assert route(topic, b"another") is one
    assert route(fanout, b"one") is one
    assert route(headers, b"one", dict) is one
    assert route(topic, b"k" * 1000) is one


def test_only_so_much_is_remembered() -> None:
    place = Place("a", most_routes=10)
    exchange = place.exchange("x", TOPIC)
    place.bind("x", "a", b"#")
    first = place.router.route(exchange, b"first")
    for number in range(1000):
        assert place.router.route(exchange, b"%d" % number) is first
        assert 1 <= len(exchange.routes) <= 10


def test_long_keys_are_not_remembered() -> None:
    """A record's key may be of any length, and is a routing key too."""
    place = Place("a")
    exchange = place.exchange("x", TOPIC)
    place.bind("x", "a", b"#")
    place.route("x", b"k" * 255)
    place.route("x", b"k" * 256)
    assert [len(key) for key in exchange.routes] == [255]


def test_nothing_remembers_a_queue_that_is_gone() -> None:
    place = Place("a")
    place.exchange("x", FANOUT)
    place.exchange("h", HEADERS)
    place.exchange("t", TOPIC)
    for name in ("x", "h", "t"):
        place.bind(name, "a", b"#")
        assert place.route(name) == ["a"]
    [queue] = map(weakref.ref, place.router.route(place.router.default, b"a"))
    assert queue() is not None
    place.router.remove_queue("a")
    assert queue() is None


def test_routes_by_header_are_not_remembered() -> None:
    place = Place("a")
    exchange = place.exchange("x", FANOUT)
    place.exchange("h", HEADERS)
    place.join("x", "h")
    place.bind("h", "a", arguments={"n": 1})
    assert place.route("x", b"k", {"n": 1}) == ["a"]
    assert place.route("x", b"k", {"n": 2}) == []
    assert not exchange.routes


def test_a_fanout_does_not_remember_keys() -> None:
    place = Place("a", "b")
    exchange = place.exchange("x", FANOUT)
    place.bind("x", "a")
    for number in range(100):
        assert place.route("x", b"%d" % number) == ["a"]
    assert not exchange.routes
    place.bind("x", "b")
    assert place.route("x", b"0") == ["a", "b"]


def test_every_change_is_seen_at_once() -> None:
    place = Place("a")
    x, y = place.exchange("x", alternate="rest"), place.exchange("y", FANOUT)

    def routes() -> tuple[list[str], list[str]]:
        for _ in range(2):
            found = place.route(x.name, b"k"), place.route(y.name, b"k")
        return found

    assert routes() == ([], [])
    place.exchange("rest", FANOUT)
    assert routes() == ([], [])
    last = place.bind("rest", "a")
    assert routes() == (["a"], [])
    joined = place.join("y", "rest")
    assert routes() == (["a"], ["a"])
    place.router.add_queue("b", Mailbox("b"))
    place.bind("x", "b", b"k")
    assert routes() == (["b"], ["a"])
    place.router.remove_queue("b")
    assert routes() == (["a"], ["a"])
    place.router.unbind(joined)
    assert routes() == (["a"], [])
    place.router.unbind(last)
    assert routes() == ([], [])
