"""What must be in queues, as far as clients can tell."""

import json
from dataclasses import dataclass, field
from typing import Any

from posthouse.broker.queues.definition import OverflowPolicy
from posthouse.broker.queues.message import Message
from posthouse.broker.queues.queue import Queue
from posthouse.broker.queues.reading import LaneReader
from posthouse.broker.queues.rereading import Rereading
from posthouse.model.clock import Clock
from posthouse.records.header_section import decode_section

Identity = tuple[bytes, str]
"""The value of a message, and the queue that it died in if it did."""

DEAD = {"dead_letter_exchange": "dead"}
QUEUES: dict[str, dict[str, Any]] = {
    "plain": {},
    "urgent": {"max_priority": 2},
    "patient": {"delivery_limit": 1, **DEAD},
    "hasty": {"message_ttl_ms": 1000, **DEAD},
    "keyed": {"ordered_by_key": True},
    "short": {"max_length": 3, **DEAD},
    "refusing": {"max_length": 3, "overflow": OverflowPolicy.REJECT_PUBLISH},
    "burying": {"max_length": 3, "overflow": OverflowPolicy.REJECT_PUBLISH_DEAD_LETTER, **DEAD},
    "blocking": {"max_length": 3, "overflow": OverflowPolicy.BLOCK},
    "graves": {},
}
SHORT = 3


@dataclass(eq=False)
class Entry:
    """One message in one queue, of which its publisher was told that it is durable."""

    queue: str
    identity: Identity
    number: int
    """In the order of publishing."""
    lane: int = 0
    key: bytes = b""
    expires_ms: int = 0
    holder: object | None = None
    was_delivered: bool = False
    may_be_noted: bool = False
    """Storage may have noted it as handed out, though nobody got it."""
    is_displaced: bool = False
    """It was on its way out and came back, so that others may have overtaken it."""
    returns: tuple[int, int] = (0, 0)
    """How often it came back: at least, and at the most."""
    stored_returns: int = 0
    was_rejected: bool = False


@dataclass
class Group:
    """What becomes durable together, or not at all."""

    added: list[Entry] = field(default_factory=list)
    settled: list[Entry] = field(default_factory=list)


class Ledger:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.alive: dict[str, dict[Identity, Entry]] = {name: {} for name in QUEUES}
        self.unsure: dict[str, dict[Identity, Entry]] = {name: {} for name in QUEUES}
        """Settled, but a crash may yet bring them back."""
        self._numbers = 0
        self.last_first: dict[tuple[str, int, bytes, object], int] = {}
        """The last number of those that were delivered for the first time, to one holder and to any."""

    def entry(self, queue: str, value: bytes, **options: Any) -> Entry:
        self._numbers += 1
        return Entry(queue, (value, options.pop("source", "")), self._numbers, **options)

    def add(self, entry: Entry) -> None:
        assert entry.identity not in self.alive[entry.queue]
        self.alive[entry.queue][entry.identity] = entry

    def ready(self, queue: str) -> list[Entry]:
        return [entry for entry in self.alive[queue].values() if entry.holder is None]

    def held_by(self, holder: object) -> list[Entry]:
        return [entry for queue in self.alive.values() for entry in queue.values() if entry.holder is holder]

    def settle(self, entry: Entry, *, durably: bool = False) -> None:
        del self.alive[entry.queue][entry.identity]
        entry.holder = None
        if not durably:
            self.unsure[entry.queue][entry.identity] = entry

    def stored(self) -> None:
        """All that was settled is durable."""
        for unsure in self.unsure.values():
            unsure.clear()
        for entries in self.alive.values():
            for entry in entries.values():
                entry.stored_returns = entry.returns[0]

    def delivered(self, message: Message, holder: object) -> None:
        queue, identity = message.queue.name, identity_of(message)
        if queue == "graves" and identity not in self.alive[queue]:
            self._buried(identity, message)
        entry = self.alive[queue].get(identity)
        assert entry is not None, f"{identity} of {queue} was settled, or never published"
        assert entry.holder is None, f"{identity} of {queue} has two holders"
        assert isinstance(message.queue, Queue)
        assert entry.lane == message.queue.lanes.index(message.lane)
        if message.queue.definition.ordered_by_key and entry.key:
            others = [other for other in self.alive[queue].values() if other.key == entry.key]
            assert all(other.holder is None for other in others), "one of a key is in flight"
        if not message.redelivered:
            assert not entry.was_delivered, f"{identity} of {queue} was delivered before"
        elif not entry.may_be_noted and not entry.is_displaced:
            assert entry.was_delivered, f"{identity} of {queue} is new"
        if not entry.was_delivered and not entry.is_displaced:
            group = queue, entry.lane, entry.key if message.queue.definition.ordered_by_key else b""
            for line in ((*group, holder), (*group, None)):
                last = self.last_first.get(line, -1)
                assert line[3] is None or last < entry.number, f"{identity} of {queue} is out of order"
                self.last_first[line] = max(last, entry.number)
        low, high = entry.returns
        assert low <= message.deliveries <= high, (message.deliveries, entry.returns)
        entry.returns = message.deliveries, message.deliveries
        entry.was_delivered = True
        entry.holder = holder

    def passed_over(self, queue: str) -> list[Entry]:
        """Never delivered, though later ones were. Several consumers are dealt messages hand by hand."""
        keyed = bool(QUEUES[queue].get("ordered_by_key"))
        return [
            entry
            for entry in self.ready(queue)
            if not entry.was_delivered
            and not entry.is_displaced
            and entry.number < self.last_first.get((queue, entry.lane, entry.key if keyed else b"", None), -1)
        ]

    def crashed(self, groups: list[Group], found: dict[str, dict[Identity, Message]]) -> None:
        """Nobody holds anything any more. What is found decides what was not sure."""
        for group in groups:
            there = {
                entry.identity in found[entry.queue] or (entry.identity[0], entry.queue) in found["graves"]
                for entry in group.added
            }
            gone = {entry.identity not in found[entry.queue] for entry in group.settled}
            assert len(there | gone) <= 1, "a part of it is durable, and a part is not"
            if there == {True}:
                for entry in group.added:
                    self.add(entry)
            if gone == {True}:
                for entry in group.settled:
                    self.settle(entry)
        for queue, unsure in self.unsure.items():
            for identity, entry in unsure.items():
                grave = identity[0], queue  # it may have come back and died since
                if identity in found[queue] or (
                    grave in found["graves"] and grave not in self.alive["graves"]
                ):
                    self.alive[queue][identity] = entry
            unsure.clear()
        for entries in self.alive.values():
            for entry in entries.values():
                entry.holder = None
                entry.may_be_noted = True
                entry.returns = entry.stored_returns, entry.returns[1]

    def restarted(self) -> None:
        self.stored()
        for name, entries in self.alive.items():
            for entry in entries.values():
                entry.holder = None
                if name == "keyed":  # those that waited for their key were taken, if not handed out
                    entry.may_be_noted = True

    def reconcile(self, found: dict[str, dict[Identity, Message]]) -> None:
        """Strike out what went by itself, if it had a reason to."""
        now_ms = self._clock.now_ms()
        for identity, message in found["graves"].items():
            if identity not in self.alive["graves"]:
                self._buried(identity, message)
        for name, entries in self.alive.items():
            for identity, entry in list(entries.items()):
                if identity not in found[name]:
                    assert not QUEUES[name].get("dead_letter_exchange"), f"{identity} of {name} is lost"
                    assert 0 < entry.expires_ms <= now_ms and entry.holder is None, (
                        f"{identity} of {name} is lost"
                    )
                    del entries[identity]
            odd = found[name].keys() - entries.keys()
            assert not odd, f"{odd} of {name} came back"

    def _buried(self, identity: Identity, message: Message) -> None:
        value, source = identity
        now_ms = self._clock.now_ms()
        assert identity not in self.unsure["graves"], "it was settled before"
        reason = deaths_of(message)[0]["reason"]
        entry = self.alive[source].pop((value, ""), None)
        assert entry is not None, f"{value!r} of {source} died twice, or never was"
        if reason == "rejected":
            assert entry.was_rejected
        elif reason == "expired":
            assert 0 < entry.expires_ms <= now_ms
        elif reason == "delivery_limit":
            assert entry.returns[1] > QUEUES[source]["delivery_limit"]
        else:
            assert reason == "maxlen" and source in ("short", "burying")
        self.add(self.entry("graves", value, source=source, key=entry.key))


def identity_of(message: Message) -> Identity:
    deaths = deaths_of(message)
    return message.value or b"", str(deaths[0]["queue"]) if deaths else ""


def deaths_of(message: Message) -> list[dict[str, object]]:
    told = dict(decode_section(message.headers)).get(b"posthouse.deaths")
    return [] if told is None else json.loads(told)


async def contents(queue: Queue, host: Any) -> dict[Identity, Message]:
    """Everything that is not settled, leased or not, as it lies in the log."""
    found: dict[Identity, Message] = {}
    for lane in queue.lanes:
        reader = LaneReader(host.storage, queue, lane, lane.progress.floor)
        messages = [message async for some in reader.messages(lane.end) for message in some]
        for position in list(lane.progress.stash):
            message = reader.stashed(position)
            assert await Rereading(host.storage).reload(message)
            messages.append(message)
        for message in messages:
            assert identity_of(message) not in found, f"{identity_of(message)} is twice in {queue.name}"
            found[identity_of(message)] = message
    return found
