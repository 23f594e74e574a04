"""One share partition against a naive model of it: every offset with its state, in a dictionary."""

import copy
from dataclasses import dataclass

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from posthouse.broker.progress.progress import Progress
from posthouse.broker.subscriptions.leases import Acknowledgement, LeaseTerms, Verdict
from posthouse.broker.subscriptions.partition import SubscribedPartition
from posthouse.model.errors import NotLeased
from posthouse.model.ids import MemberId
from posthouse.storage.operations import Put
from posthouse.storage.spaces import Space
from tests.examples import examples

QUEUE = b"q" * 16
FIRST = 4090  # so that chunks of 4,096 are crossed
MEMBERS = [MemberId(name) for name in "abc"]
TERMS = LeaseTerms(lock_seconds=10.0, max_deliveries=3, max_leases=12)


@dataclass
class ModelRecord:
    deliveries: int = 0
    settled: bool = False
    holder: MemberId | None = None
    deadline: float = 0.0
    only_waits: bool = False

    def back(self, *, count: bool = True) -> None:
        self.holder = None
        if count:
            self.deliveries += 1
            self.settled = self.deliveries >= TERMS.max_deliveries


class SubscribedPartitionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.start = FIRST
        self.model: dict[int, ModelRecord] = {}
        self.stored: dict[bytes, bytes] = {}
        self.stored_model: dict[int, ModelRecord] = {}
        self.partition = SubscribedPartition(Progress(QUEUE, 1, FIRST, space=Space.SHARE_PROGRESS))
        self.partition.progress.is_changed = True
        self.store()
        self.append(8)

    @property
    def end(self) -> int:
        return FIRST + len(self.model)

    def expire_model(self) -> None:
        for record in self.model.values():
            if record.holder is not None and record.deadline <= self.now:
                record.back()

    @rule(count=st.integers(1, 6))
    def append(self, count: int) -> None:
        for _ in range(count):
            self.model[self.end] = ModelRecord()

    @rule(member=st.sampled_from(MEMBERS), most=st.integers(1, 8), size=st.integers(0, 4))
    def acquire(self, member: MemberId, most: int, size: int) -> None:
        self.partition.expire(self.now, TERMS)
        self.expire_model()
        first = self.partition.next_ready()
        ready = [offset for offset, each in self.model.items() if each.holder is None and not each.settled]
        assert first == (ready[0] if ready else self.end)
        wanted = self.partition.ready(range(first, self.end))[:most]
        runs = self.partition.acquire(wanted, member, self.now, TERMS, size)
        leased = [offset for run in runs for offset in range(run.first, run.last + 1)]
        held = sum(each.holder is not None for each in self.model.values())
        assert leased == ready[: min(most, TERMS.max_leases - held)]
        for run in runs:
            assert not size or run.last - run.first < size
            for offset in range(run.first, run.last + 1):
                record = self.model[offset]
                assert run.deliveries == record.deliveries + 1
                assert run.deliveries <= TERMS.max_deliveries
                record.holder, record.deadline = member, self.now + TERMS.lock_seconds
                record.only_waits = False

    @precondition(lambda self: self.model)
    @rule(
        member=st.sampled_from(MEMBERS),
        place=st.floats(0, 1, exclude_max=True),
        verdicts=st.lists(st.sampled_from(Verdict), min_size=1, max_size=5),
        together=st.booleans(),
    )
    def acknowledge(self, member: MemberId, place: float, verdicts: list[Verdict], together: bool) -> None:
        first = FIRST + int(place * len(self.model))
        last = first + len(verdicts) - 1
        said = Acknowledgement(first, last, verdicts[:1] if together else verdicts)
        self.expire_model()
        told = {offset: verdict for offset, verdict in said if offset >= self.start}
        allowed = all(offset in self.model and self.model[offset].holder == member for offset in told)
        try:
            self.partition.acknowledge(member, [said], self.now, TERMS)
        except NotLeased:
            assert not allowed
            return
        assert allowed
        for offset, verdict in told.items():
            record = self.model[offset]
            if verdict is Verdict.RENEW:
                record.deadline = self.now + TERMS.lock_seconds
            elif verdict is Verdict.RELEASE:
                record.back()
            else:
                record.holder, record.settled = None, True

    @rule(member=st.sampled_from(MEMBERS), verdict=st.sampled_from(Verdict), step=st.integers(1, 2))
    def acknowledge_all(self, member: MemberId, verdict: Verdict, step: int = 1) -> None:
        """Every `step`th that the member really holds, so that it is not refused."""
        self.expire_model()
        held = [offset for offset, each in self.model.items() if each.holder == member][::step]
        said = [Acknowledgement(offset, offset, [verdict]) for offset in held]
        self.partition.acknowledge(member, said, self.now, TERMS)
        for offset in held:
            record = self.model[offset]
            if verdict is Verdict.RENEW:
                record.deadline = self.now + TERMS.lock_seconds
            elif verdict is Verdict.RELEASE:
                record.back()
            else:
                record.holder, record.settled = None, True

    @rule(member=st.sampled_from(MEMBERS), step=st.integers(1, 2))
    def give_away_for_a_while(self, member: MemberId, step: int) -> None:
        self.expire_model()
        held = [offset for offset, each in self.model.items() if each.holder == member][::step]
        said = [Acknowledgement(offset, offset, [Verdict.RENEW], 5.0, only_waits=True) for offset in held]
        self.partition.acknowledge(member, said, self.now, TERMS)
        for offset in held:
            self.model[offset].deadline = self.now + 5.0
            self.model[offset].only_waits = True

    @rule(seconds=st.sampled_from([2.0, 7.0, 11.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.partition.expire(self.now, TERMS)
        self.expire_model()

    @rule(member=st.sampled_from(MEMBERS), most=st.integers(1, 4), verdict=st.sampled_from(Verdict))
    def work(self, member: MemberId, most: int, verdict: Verdict) -> None:
        """The ordinary way, most often taken: some records, and the same said of all that are held."""
        self.acquire(member, most, 0)
        self.acknowledge_all(member, verdict)

    @rule(member=st.sampled_from(MEMBERS))
    def hold_on(self, member: MemberId) -> None:
        """Longer than one lease lasts."""
        for _ in range(2):
            self.time_passes(7.0)
            self.acknowledge_all(member, Verdict.RENEW)

    @rule(member=st.sampled_from(MEMBERS), times=st.integers(1, 3))
    def fail(self, member: MemberId, times: int) -> None:
        for _ in range(times):
            self.acquire(member, 2, 0)
            self.acknowledge_all(member, Verdict.RELEASE)

    @rule(what=st.sampled_from(["store", "store fails", "restart", "crash"]))
    def disturb(self, what: str) -> None:
        if what == "store":
            self.store()
        elif what == "store fails":
            self.partition.progress.puts()
            self.partition.progress.not_stored()
        else:
            self.restart(crash=what == "crash")

    @rule(place=st.floats(0, 1), size=st.integers(1, 4), kind=st.sampled_from(["gap", "gap", "log start"]))
    def lose(self, place: float, size: int, kind: str) -> None:
        if kind == "gap":
            self.gap_is_found(place, size)
        else:
            self.log_start_moves(place / 4)

    @rule(member=st.sampled_from(MEMBERS), count=st.booleans())
    def member_is_lost(self, member: MemberId, count: bool) -> None:
        self.expire_model()
        self.partition.expire(self.now, TERMS)
        held = [each for each in self.model.values() if each.holder == member]
        assert self.partition.take_back(member, TERMS, count=count) == bool(held)
        for record in held:
            record.back(count=count)

    def gap_is_found(self, place: float, size: int) -> None:
        first = FIRST + int(place * len(self.model))
        end = min(first + size, self.end)
        self.partition.pass_over(first, end)
        for offset in range(first, end):
            if self.model[offset].holder is None:
                self.model[offset].settled = True

    def log_start_moves(self, place: float) -> None:
        self.start = max(self.start, FIRST + int(place * len(self.model)))
        self.partition.trim(self.start)
        for offset in range(FIRST, self.start):
            self.model[offset].settled, self.model[offset].holder = True, None

    def store(self) -> None:
        for put in self.partition.progress.puts():
            self.keep(put)
        self.stored_model = copy.deepcopy(self.model)

    def keep(self, put: Put) -> None:
        assert put.space is Space.SHARE_PROGRESS
        if put.value is None:
            self.stored.pop(put.key, None)
        else:
            self.stored[put.key] = put.value

    def restart(self, *, crash: bool) -> None:
        """A crash takes back what was not stored: those records come again, and none is lost."""
        if not crash:
            self.store()
        known, self.model = self.model, copy.deepcopy(self.stored_model)
        for offset in range(FIRST + len(self.model), FIRST + len(known)):
            self.model[offset] = ModelRecord()
        for record in self.model.values():
            record.holder = None
        for offset in range(FIRST, self.start):
            self.model[offset].settled = True
        progress = Progress(QUEUE, 1, space=Space.SHARE_PROGRESS)
        for key, value in self.stored.items():
            progress.load(key, value)
        progress.loaded(self.start)
        self.partition = SubscribedPartition(progress)
        self.partition.trim(self.start)

    @invariant()
    def states_agree(self) -> None:
        progress = self.partition.progress
        for offset, record in self.model.items():
            assert progress.is_settled(offset) == record.settled, offset
            assert self.partition.holder(offset) == record.holder, offset
            if not record.settled:
                assert progress.deliveries(offset) == record.deliveries, offset
        leased = [each for each in self.model.values() if each.holder is not None]
        assert self.partition.leased == len(leased)
        assert self.partition.in_work == sum(not each.only_waits for each in leased)
        unsettled = [offset for offset, each in self.model.items() if not each.settled]
        assert progress.floor == (unsettled[0] if unsettled else self.end)
        assert self.partition.deadline >= self.now or not self.partition.leased


TestSubscribedPartition = SubscribedPartitionMachine.TestCase
TestSubscribedPartition.settings = settings(max_examples=examples(150), stateful_step_count=30, deadline=None)
