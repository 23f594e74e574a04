"""What a route costs must not depend on bindings that do not match: counted, not timed."""

from collections.abc import Callable, Mapping

import pytest

from posthouse.broker.routing.definitions import Binding, ExchangeDefinition, ExchangeKind
from posthouse.broker.routing.exchange import Exchange
from posthouse.broker.routing.router import Router
from tests.instructions import instructions

MANY = 10_000
FEW = 10


class Bound:
    """An exchange with so many bindings, made from their numbers, to ten queues."""

    def __init__(
        self,
        kind: ExchangeKind,
        size: int,
        *,
        key: Callable[[int], bytes] = lambda number: b"",
        arguments: Callable[[int], Mapping[str, object]] = lambda number: {},
    ) -> None:
        self.router: Router[str] = Router(0)
        for number in range(10):
            self.router.add_queue(f"q{number}", f"q{number}")
        self.exchange: Exchange = self.router.declare(ExchangeDefinition(name="x", kind=kind))
        for number in range(size):
            binding = Binding(
                source="x", destination=f"q{number % 10}", key=key(number), arguments=arguments(number)
            )
            self.router.bind(binding)

    def route(self, key: bytes, headers: Mapping[str, object]) -> tuple[str, ...]:
        return self.router.route(self.exchange, key, lambda: headers)

    def cost(self, key: bytes, headers: Mapping[str, object]) -> int:
        return instructions(lambda: self.route(key, headers))


def check(
    make: Callable[[int], Bound], key: bytes = b"", headers: Mapping[str, object] | None = None
) -> None:
    few, many = make(FEW), make(MANY)
    table = {} if headers is None else headers
    assert few.route(key, table) == many.route(key, table) == ("q5",)
    assert few.cost(key, table) * 1.2 > many.cost(key, table) > 20


@pytest.mark.parametrize(
    ("pattern", "key"),
    [
        (b"k.%d", b"k.5"),
        (b"%d.k", b"5.k"),
        (b"%d.*", b"5.k"),
        (b"*.%d", b"k.5"),
        (b"%d.#", b"5.a.b"),
        (b"#.%d", b"a.b.5"),
        (b"#.%d.#", b"a.b.5.c"),
        (b"*.%d.#.k", b"a.5.b.c.k"),
        (b"a.%d.*.b.#", b"a.5.c.b.d"),
    ],
)
def test_topic(pattern: bytes, key: bytes) -> None:
    check(lambda size: Bound(ExchangeKind.TOPIC, size, key=lambda number: pattern % number), key)


def test_direct() -> None:
    check(lambda size: Bound(ExchangeKind.DIRECT, size, key=lambda number: b"%d" % number), b"5")


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        (lambda number: {"n": number}, {"n": 5}),
        (lambda number: {"a": "same", "n": number, "z": "same"}, {"a": "same", "n": 5, "z": "same"}),
        (lambda number: {"a": None, "n": number}, {"a": "there", "n": 5}),
        (lambda number: {"n": number, "x-match": "any"}, {"n": 5}),
        (lambda number: {"n": number, "m": -number, "x-match": "any"}, {"n": 5, "m": 1.5}),
        (lambda number: {"x-n": number, "x-match": "all-with-x"}, {"x-n": 5}),
    ],
)
def test_headers(arguments: Callable[[int], Mapping[str, object]], headers: Mapping[str, object]) -> None:
    check(lambda size: Bound(ExchangeKind.HEADERS, size, arguments=arguments), headers=headers)


def test_headers_of_two_kinds_share_the_work() -> None:
    """100 × 100 pairs: a message meets those that are filed under one of its two, not all of them."""
    grid = Bound(ExchangeKind.HEADERS, MANY, arguments=lambda number: {"a": number % 100, "b": number // 100})
    assert grid.route(b"", {"a": 5, "b": 7}) == ("q5",)
    single = Bound(ExchangeKind.HEADERS, 1, arguments=lambda number: {"a": 5, "b": 7})
    assert grid.cost(b"", {"a": 5, "b": 7}) < MANY
    assert single.cost(b"", {"a": 5, "b": 7}) > 20


def test_no_pattern_runs_away() -> None:
    """Trying one way after the other would take some 10^20 steps here."""
    repeated = Bound(ExchangeKind.TOPIC, 20, key=lambda number: b".".join([b"#", b"a"] * number + [b"b"]))
    key = b".".join([b"a"] * 127)
    assert repeated.route(key, {}) == ()
    assert repeated.cost(key, {}) < 127 * 3 * 20 * 60


def test_a_remembered_route_costs_nearly_nothing() -> None:
    router: Router[str] = Router()
    router.add_queue("q", "q")
    exchange = router.declare(ExchangeDefinition(name="x", kind=ExchangeKind.TOPIC))
    for number in range(1000):
        router.bind(Binding(source="x", destination="q", key=b"#.%d" % number))
    first = instructions(lambda: router.route(exchange, b"a.5", None))
    assert instructions(lambda: router.route(exchange, b"a.5", None)) < 40 < first


def test_binding_one_more_does_not_look_at_the_others() -> None:
    def binding(number: int) -> Binding:
        return Binding(source="x", destination="q1", key=b"*.%d" % number, arguments={"n": number, "a": 1})

    def bind_and_unbind(bound: Bound) -> int:
        one_more = binding(MANY + 1)
        binding_it = instructions(lambda: bound.router.bind(one_more))
        return binding_it + instructions(lambda: bound.router.unbind(one_more))

    for kind in ExchangeKind:
        few, many = (
            Bound(kind, size, key=lambda number: binding(number).key, arguments=lambda number: {"n": number})
            for size in (FEW, MANY)
        )
        assert bind_and_unbind(many) < bind_and_unbind(few) * 1.2
