"""`python -m bench.routing`: what finding the queues of a message costs, by the number of bindings.

One of the bindings matches, but for fanout all of them. Cached is a key that was routed before; uncached is a
router that remembers nothing, where the figure is per queue that was found.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import process_time

from rich.console import Console
from rich.table import Table

from posthouse.broker.routing.definitions import Binding, ExchangeDefinition, ExchangeKind
from posthouse.broker.routing.router import Router

SIZES = (1, 100, 10_000)
_ROUNDS = 20
_ROUND_SECONDS = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Bindings made from their numbers, and a message that matches number 0."""

    name: str
    kind: ExchangeKind
    binding_key: Callable[[int], bytes] = lambda number: b""
    arguments: Callable[[int], Mapping[str, object]] = lambda number: {}
    key: bytes = b"stock.0.nyse"
    headers: Mapping[str, object] | None = None

    @property
    def is_cached(self) -> bool:
        return self.kind is not ExchangeKind.HEADERS


SCENARIOS = [
    Scenario(name="direct", kind=ExchangeKind.DIRECT, binding_key=lambda number: b"stock.%d.nyse" % number),
    Scenario(name="fanout", kind=ExchangeKind.FANOUT),
    Scenario(
        name="topic, words only",
        kind=ExchangeKind.TOPIC,
        binding_key=lambda number: b"stock.%d.nyse" % number,
    ),
    Scenario(name="topic, *", kind=ExchangeKind.TOPIC, binding_key=lambda number: b"*.%d.*" % number),
    Scenario(name="topic, #", kind=ExchangeKind.TOPIC, binding_key=lambda number: b"#.%d.#" % number),
    Scenario(
        name="headers, all",
        kind=ExchangeKind.HEADERS,
        arguments=lambda number: {"market": "nyse", "stock": number},
        headers={"market": "nyse", "stock": 0, "price": 1.5},
    ),
    Scenario(
        name="headers, any",
        kind=ExchangeKind.HEADERS,
        arguments=lambda number: {"x-match": "any", "market": f"m{number}", "stock": number},
        headers={"market": "nyse", "stock": 0, "price": 1.5},
    ),
]


Route = Callable[[], Sequence[object]]


def figures(scenario: Scenario, *, cached: bool) -> list[float]:
    """µs of one route, or uncached of one queue in it, for each size.

    Processor time, and the best of several rounds in which the sizes take turns: the machine may be busy.
    """
    routes = [_route(scenario, size, cached=cached) for size in SIZES]
    rounds = [[_per_call(route) for route in routes] for _ in range(_ROUNDS)]
    best = [min(times) for times in zip(*rounds, strict=True)]
    return best if cached else [time / len(route()) for time, route in zip(best, routes, strict=True)]


def _route(scenario: Scenario, size: int, *, cached: bool) -> Route:
    router: Router[object] = Router() if cached else Router(0)
    exchange = router.declare(ExchangeDefinition(name="bench", kind=scenario.kind))
    for number in range(size):
        router.add_queue(f"q{number}", object())
        router.bind(
            Binding(
                source="bench",
                destination=f"q{number}",
                key=scenario.binding_key(number),
                arguments=scenario.arguments(number),
            )
        )
    headers = None if scenario.headers is None else lambda: scenario.headers or {}
    found = len(router.route(exchange, scenario.key, headers))
    if found != (size if scenario.kind is ExchangeKind.FANOUT else 1):
        raise RuntimeError(f"{scenario.name}: {found} queues found")
    return lambda: router.route(exchange, scenario.key, headers)


def _per_call(call: Callable[[], object]) -> float:
    calls = 0
    begun = process_time()
    while (passed := process_time() - begun) < _ROUND_SECONDS:
        for _ in range(50):
            call()
        calls += 50
    return passed / calls * 1e6


def main() -> None:
    console = Console()
    table = Table(
        "µs per route", *(f"{size:,}" for size in SIZES), *(f"ratio {size:,}" for size in SIZES[1:])
    )
    for scenario in SCENARIOS:
        for cached in (True, False) if scenario.is_cached else (False,):
            with console.status(f"measuring: {scenario.name} …"):
                found = figures(scenario, cached=cached)
            table.add_row(
                f"{scenario.name}, {'cached' if cached else 'uncached'}",
                *(f"{figure:.3f}" for figure in found),
                *(f"{figure / found[0]:.2f}" for figure in found[1:]),
            )
    console.print(table)


if __name__ == "__main__":
    main()
