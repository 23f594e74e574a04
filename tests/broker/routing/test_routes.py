"""Where messages go: each rule of routing once, in words."""

from collections.abc import Mapping

import pytest

from posthouse.broker.routing.definitions import Binding
from posthouse.model.errors import AccessRefused
from tests.broker.routing.naive import Mailbox
from tests.broker.routing.place import DIRECT, FANOUT, HEADERS, TOPIC, Place


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
