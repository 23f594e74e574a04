"""Exchanges and bindings that come and go, by example."""

import pytest

from posthouse.broker.routing.definitions import Binding
from posthouse.model.errors import InvalidDefinition, UnknownExchange, UnknownQueue
from tests.broker.routing.naive import Mailbox
from tests.broker.routing.place import FANOUT, HEADERS, TOPIC, Place


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


def test_exchanges_that_lead_to_a_queue() -> None:
    place = Place("a", "b")
    for name, alternate in (("x", None), ("y", None), ("z", "y"), ("to-all", ""), ("other", "nowhere")):
        place.exchange(name, FANOUT, alternate)
    place.bind("x", "a")
    place.join("y", "x")
    place.join("x", "y")
    place.bind("other", "b")
    assert place.router.leading_to("a") == {"x", "y", "z", "to-all"}
    assert place.router.leading_to("b") == {"other", "to-all"}
