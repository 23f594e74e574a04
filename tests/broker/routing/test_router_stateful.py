"""Whatever is declared, bound and taken away again: the router agrees with one that remembers nothing."""

from functools import partial

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from posthouse.broker.routing.definitions import Binding, ExchangeDefinition, ExchangeKind
from posthouse.broker.routing.exchange import Exchange
from posthouse.broker.routing.router import Headers, Router
from posthouse.broker.routing.topic import TopicMatcher
from tests.broker.routing.naive import Mailbox, NaiveRouter
from tests.examples import examples

EXCHANGES = ["w", "x", "y", "z"]
QUEUES = ["a", "b", "a.b", "c"]
KEYS = [b"", b"a", b"a.b", b"a.b.a"]
MESSAGES: list[dict[str, object]] = [{}, {"n": 1}, {"n": "1", "x-m": 1}, {"n": True, "m": "a"}]

patterns = st.one_of(
    st.sampled_from(KEYS), st.sampled_from([b"#", b"*", b"a.*", b"a.#", b"#.a", b"*.*", b"#.b.#"])
)
modes: st.SearchStrategy[dict[str, object]] = st.sampled_from(
    [{}, {"x-match": "any"}, {"x-match": "all-with-x"}, {"x-match": "any-with-x"}]
)
conditions = st.dictionaries(
    st.sampled_from(["n", "m", "x-m"]), st.sampled_from([1, "1", True, 1.0, "a", None]), max_size=2
)
bindings = st.builds(
    lambda source, destination, key, mode, table: Binding(
        source=source,
        destination=destination[0],
        to_exchange=destination[1],
        key=key,
        arguments={**mode, **table},
    ),
    st.sampled_from(EXCHANGES),
    st.one_of(
        st.tuples(st.sampled_from(QUEUES), st.just(False)),
        st.tuples(st.sampled_from(EXCHANGES), st.just(True)),
    ),
    patterns,
    modes,
    conditions,
)


class AnyTopology(RuleBasedStateMachine):
    @initialize(
        most_routes=st.sampled_from([0, 2, 10_000]),
        kinds=st.permutations(list(ExchangeKind)),
        alternates=st.permutations([None, *EXCHANGES]),
        several=st.lists(bindings, min_size=5, max_size=15),
    )
    def begin(
        self,
        most_routes: int,
        kinds: list[ExchangeKind],
        alternates: list[str | None],
        several: list[Binding],
    ) -> None:
        self.most_routes = most_routes
        self.router: Router[Mailbox] = Router(most_routes)
        self.naive = NaiveRouter()
        self.deleted: list[Exchange] = []
        for name, kind, alternate in zip(EXCHANGES, kinds, alternates, strict=False):
            self.declare(name, kind, alternate)
        for name in QUEUES:
            self.add_queue(name)
        self.bind(several)

    @rule(
        name=st.sampled_from(EXCHANGES),
        kind=st.sampled_from(ExchangeKind),
        alternate=st.sampled_from([None, "", *EXCHANGES]),
    )
    def declare(self, name: str, kind: ExchangeKind, alternate: str | None) -> None:
        """One that is there goes first: alternates must come to names that others are used to."""
        if name in self.naive.exchanges:
            self.delete(name)
        definition = ExchangeDefinition(name=name, kind=kind, alternate=alternate)
        self.naive.exchanges[name] = definition
        assert self.router.declare(definition).definition is definition

    @rule(name=st.sampled_from(EXCHANGES))
    def delete(self, name: str) -> None:
        if name in self.naive.exchanges:
            self.deleted.append(self.router.exchange(name))
            assert self.router.delete(name) == self.naive.delete(name)

    @rule(name=st.sampled_from(QUEUES))
    def add_queue(self, name: str) -> None:
        if name not in self.naive.queues:
            self.naive.queues[name] = queue = Mailbox(name)
            self.router.add_queue(name, queue)

    @rule(name=st.sampled_from(QUEUES))
    def remove_queue(self, name: str) -> None:
        if name in self.naive.queues:
            assert self.router.remove_queue(name) == self.naive.remove_queue(name)

    def _bind(self, binding: Binding) -> None:
        places = self.naive.exchanges if binding.to_exchange else self.naive.queues
        if binding.source in self.naive.exchanges and binding.destination in places:
            assert self.router.bind(binding) is self.naive.bind(binding)

    @rule(several=st.lists(bindings, min_size=3, max_size=10))
    def bind(self, several: list[Binding]) -> None:
        for binding in several:
            self._bind(binding)

    @rule(binding=bindings)
    def bind_twice(self, binding: Binding) -> None:
        self._bind(binding)
        self._bind(binding)

    @rule(binding=bindings)
    def unbind_any(self, binding: Binding) -> None:
        assert self.router.unbind(binding) is self.naive.unbind(binding)

    @precondition(lambda self: bool(self.naive.bindings))
    @rule(data=st.data())
    def unbind(self, data: st.DataObject) -> None:
        binding = data.draw(st.sampled_from(self.naive.bindings))
        assert self.router.unbind(binding)
        assert self.naive.unbind(binding)

    @invariant()
    def routes_agree(self) -> None:
        for name in self.naive.exchanges:
            exchange = self.router.exchange(name)
            for key in KEYS:
                for headers in MESSAGES:
                    table: Headers = partial(dict, headers)
                    route = self.router.route(exchange, key, table)
                    assert route == self.naive.route(name, key, headers), (name, key, headers)
                    if self.most_routes > 2:
                        assert self.router.route(exchange, key, table) is route

    @invariant()
    def listings_agree(self) -> None:
        def shown(bindings: list[Binding]) -> list[str]:
            return sorted(map(repr, bindings))

        there = self.naive.bindings
        assert [each.name for each in self.router.exchanges()] == list(self.naive.exchanges)
        assert shown(self.router.bindings()) == shown(there)
        for name in self.naive.exchanges:
            leaving = [each for each in there if each.source == name]
            assert self.router.bindings(source=name) == leaving
            assert self.router.exchange(name).is_used is bool(leaving)
        for name in (*EXCHANGES, *QUEUES):
            for to_exchange in (False, True):
                assert self.router.bindings(destination=name, to_exchange=to_exchange) == [
                    each for each in there if each.destination == name and each.to_exchange is to_exchange
                ]

    def teardown(self) -> None:
        """Taken apart, nothing is left of it."""
        if not hasattr(self, "router"):
            return
        for name in list(self.naive.queues):
            self.remove_queue(name)
        for name in EXCHANGES:
            self.delete(name)
        for exchange in self.deleted:
            assert exchange.is_deleted
            assert not exchange.is_used
            assert not exchange.matcher.match(b"a", {"n": 1})
        assert not self.router._queues
        assert not self.router._arriving
        for exchange in (self.router.default, *self.deleted):
            if isinstance(exchange.matcher, TopicMatcher):
                assert exchange.matcher.root.is_empty
            else:
                assert not any(vars(exchange.matcher).values())
        assert self.router.exchanges() == [self.router.default]


TestAnyTopology = AnyTopology.TestCase
TestAnyTopology.settings = settings(max_examples=examples(100), stateful_step_count=20, deadline=None)
