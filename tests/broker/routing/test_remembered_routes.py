"""What a router remembers of its routes, and forgets in time."""

import weakref

from tests.broker.routing.naive import Mailbox
from tests.broker.routing.place import FANOUT, HEADERS, TOPIC, Place


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
