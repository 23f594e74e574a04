"""Producers of both protocols against a model: what readers of committed records see is what was committed,
in order, up to the first transaction that is open; nobody who was fenced changes anything, and what is
prepared waits for the producer that has taken it."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from posthouse.model.errors import InvalidTransaction, ProducerFenced
from tests.broker.transactions.producers import TIMEOUT_MS, Bench, Client
from tests.examples import examples

T = TypeVar("T")

IDS = st.sampled_from(["a", "b", "c"])
PARTITIONS = st.integers(0, 1)


@dataclass
class Written:
    value: bytes
    is_open: bool = True
    is_committed: bool = False


@dataclass(eq=False)
class Player:
    """A client, and what it has open according to the model."""

    client: Client
    is_fenced: bool = False
    """Another producer has its transactional id."""
    is_late: bool = False
    """Its transaction took too long: it has to abort, or to ask for its next epoch, before it can go on."""
    open: list[Written] = field(default_factory=list)
    offset: int | None = None
    started: bool = False
    is_two_phase: bool = False
    """Its transactions have no timeout."""
    is_prepared: bool = False
    """It can only commit or abort."""

    def decided(self, *, commit: bool) -> None:
        for each in self.open:
            each.is_open, each.is_committed = False, commit
        self.open, self.offset, self.started, self.is_prepared = [], None, False, False

    def taken(self) -> "tuple[list[Written], int | None, bool]":
        """Another producer decides what this one has open."""
        found = self.open, self.offset, self.started
        self.open, self.offset, self.started, self.is_prepared = [], None, False, False
        self.is_fenced, self.is_late = True, False
        return found


class Transactions(RuleBasedStateMachine):
    players = Bundle("players")

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.bench = Bench()
        self.run(self.bench.start())
        self.owners: dict[str, Player] = {}
        self.log: list[list[Written]] = [[], []]
        self.offset: int | None = None
        self.count = 0

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(coroutine)

    def teardown(self) -> None:
        self.run(self.bench.close())
        self.loop.close()

    @rule(target=players, id=IDS, newer=st.booleans(), two_phase=st.booleans())
    def start(self, id: str, newer: bool, two_phase: bool) -> Player:
        """A client takes a transactional id over from whoever had it."""
        player = Player(Client(self.bench, id, epoch_per_transaction=newer), is_two_phase=two_phase)
        self.run(player.client.init(two_phase=two_phase))
        if id in self.owners:
            self._fenced(self.owners[id])
        self.owners[id] = player
        return player

    @rule(target=players, id=IDS, newer=st.booleans())
    def take(self, id: str, newer: bool) -> Player:
        """The same, but what is open is prepared and not aborted."""
        player = Player(Client(self.bench, id, epoch_per_transaction=newer), is_two_phase=True)
        found = self.run(player.client.resume())
        if id in self.owners:
            player.open, player.offset, player.started = self.owners[id].taken()
            player.is_prepared = player.started
        assert (found is not None) == player.is_prepared
        self.owners[id] = player
        return player

    @rule(player=players)
    def prepare(self, player: Player) -> None:
        """A client prepares what it has open itself."""
        expected = player.client.producer
        if player.is_fenced:
            with pytest.raises(ProducerFenced):
                self.run(player.client.resume(expected=expected))
            return
        found = self.run(player.client.resume(expected=expected))
        assert (found is not None) == player.started
        player.is_two_phase, player.is_prepared, player.is_late = True, player.started, False

    def _fenced(self, player: Player) -> None:
        player.decided(commit=False)
        player.is_fenced, player.is_late = True, False

    @rule(player=players, partition=PARTITIONS)
    def write(self, player: Player, partition: int) -> None:
        self.count += 1
        value = b"%d" % self.count
        if player.is_fenced or player.is_late:
            with pytest.raises(ProducerFenced):
                self.run(player.client.write(value, partition=partition))
            return
        if player.is_prepared:
            with pytest.raises(InvalidTransaction):
                self.run(player.client.write(value, partition=partition))
            return
        self.run(player.client.write(value, partition=partition))
        written = Written(value)
        player.open.append(written)
        player.started = True
        self.log[partition].append(written)

    @rule(player=players, offset=st.integers(0, 100))
    def commit_offset(self, player: Player, offset: int) -> None:
        if player.is_fenced or player.is_late:
            with pytest.raises(ProducerFenced):
                self.run(player.client.commit_offset(offset))
            return
        if player.is_prepared:
            with pytest.raises(InvalidTransaction):
                self.run(player.client.commit_offset(offset))
            return
        self.run(player.client.commit_offset(offset))
        player.offset, player.started = offset, True

    @rule(player=players, commit=st.booleans(), times=st.integers(1, 2))
    def end(self, player: Player, commit: bool, times: int) -> None:
        client = player.client
        if player.is_late:
            self._end_late(player, commit)
            return
        if not player.started and not player.is_fenced:
            return
        asked = client.producer
        for _ in range(times):
            member = client.member(producer=asked)
            if player.is_fenced:
                with pytest.raises(ProducerFenced):
                    self.run(client.end(commit=commit, member=member))
            else:
                self.run(client.end(commit=commit, member=member))
        if player.is_fenced:
            return
        if commit and player.offset is not None:
            self.offset = player.offset
        player.decided(commit=commit)

    def _end_late(self, player: Player, commit: bool) -> None:
        client = player.client
        if client.epoch_per_transaction and not commit:
            self.run(client.end(commit=False))
            player.is_late = False
            return
        with pytest.raises(InvalidTransaction if client.epoch_per_transaction else ProducerFenced):
            self.run(client.end(commit=commit))

    @rule(player=players)
    def ask_for_the_next_epoch(self, player: Player) -> None:
        if player.is_fenced:
            with pytest.raises(ProducerFenced):
                self.run(player.client.init(again=True))
            return
        self.run(player.client.init(again=True))
        player.decided(commit=False)
        player.is_late = player.is_two_phase = False

    @rule(player=consumes(players))
    def leave(self, player: Player) -> None:
        player.client.session.is_open = False

    @rule(player=players)
    def lose_connection(self, player: Player) -> None:
        if player.client.epoch_per_transaction or (not player.open and player.offset is None):
            player.client.lose_connection()

    @rule()
    def time_is_up(self) -> None:
        self.bench.clock.advance(TIMEOUT_MS / 1000)
        self.run(self.bench.broker.transactions.abort_expired())
        for player in self.owners.values():
            if player.started and not player.is_two_phase:
                player.decided(commit=False)
                player.is_late = True

    @rule()
    def crash(self) -> None:
        self.run(self.bench.crash())
        for player in self.owners.values():
            player.client.lose_connection()

    @invariant()
    def readers_see_what_was_committed(self) -> None:
        for partition, written in enumerate(self.log):
            expected = []
            for each in written:
                if each.is_open:
                    break
                if each.is_committed:
                    expected.append(each.value)
            assert self.run(self.bench.committed(partition)) == expected

    @invariant()
    def offsets_are_those_committed_last(self) -> None:
        assert self.bench.offset_of("g") == self.offset


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(
    max_examples=examples(150),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
