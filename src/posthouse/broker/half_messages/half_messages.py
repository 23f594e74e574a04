"""The half messages of a broker: prepared, decided once, and asked about until they are.

    prepare ──► undecided ──commit──► published
                    │ ▲ └──roll back──► nowhere
              check └─┘ └──the last check──► parked

A decision and what follows from it (the message in its topic, with its references for queues) are one commit,
so a message is visible if and only if it is committed. Decisions are written in waves, one after the other: a
bit of a later wave must not say more than what earlier ones have made durable.

Producers decide by the id of a message, or by the name that they have given it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, TypeAlias

from posthouse.broker.half_messages.checks import FIRST_CHECK_SECONDS, Ask, Checks
from posthouse.broker.half_messages.decisions import BLOCK, Decisions
from posthouse.broker.half_messages.half_log import HalfLog
from posthouse.broker.half_messages.half_message import FullName, HalfMessage
from posthouse.broker.half_messages.names import Named, Names, Stored
from posthouse.broker.half_messages.parking import PARKED_TOPIC, park
from posthouse.broker.half_messages.proofs import LARGEST_ID, proven_commits, published, with_proof
from posthouse.broker.half_messages.recent_messages import RecentMessages
from posthouse.broker.half_messages.undecided import Decision, Undecided
from posthouse.broker.housekeeping import Housekeeping
from posthouse.broker.queues.envelope import Envelope
from posthouse.broker.queues.namespace import Namespace
from posthouse.broker.queues.namespaces import Namespaces
from posthouse.broker.record_limits import check_record
from posthouse.broker.schedule.entry import Scheduled
from posthouse.broker.topics import NewTopic
from posthouse.model.clock import Clock
from posthouse.model.errors import (
    AlreadyDecided,
    BadRequest,
    DataDamaged,
    NameTaken,
    PosthouseError,
    TopicExists,
    Unavailable,
    UnknownTransaction,
)
from posthouse.model.scopes import DEFAULT_NAMESPACE
from posthouse.model.topics import Topic
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Put
from posthouse.storage.spaces import Space

log = logging.getLogger(__name__)

MOST_UNDECIDED: Final = 1_000_000
"""Each takes some 300 bytes of memory, and twice that if it has a name."""
_AT_ONCE: Final = 1000
_LOOK_SECONDS: Final = 1.0

CreateTopics: TypeAlias = Callable[[Sequence[NewTopic]], Awaitable[list[Topic | PosthouseError]]]


class HalfMessages:
    """Owned by the event loop. Of a broker that is alone: in a cluster nothing can be prepared."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        half_log: HalfLog,
        namespaces: Namespaces,
        create_topics: CreateTopics,
        *,
        is_alone: bool,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._log = half_log
        self._namespaces = namespaces
        self._create_topics = create_topics
        self._is_alone = is_alone
        self._decisions = Decisions()
        self._undecided: dict[int, Undecided] = {}
        """In the order of their ids."""
        self._names = Names()
        self._following = 0
        """The id behind the last one that is known."""
        self._deciding: dict[int, Decision] = {}
        """In the wave that is being written, and in the next ones."""
        self._recent = RecentMessages()
        self._writing: asyncio.Task[None] | None = None
        self._checks = Checks(clock, self._undecided, self._deciding, self._messages, self._park)
        self._checking = Housekeeping([self.check], _LOOK_SECONDS)
        self.committed = 0
        """Since the broker has started, as those below."""
        self.rolled_back = 0
        self.parked = 0

    # Life

    async def load(self) -> None:
        """What is stored: once, before `start`. Raises Unavailable."""
        self._log.load()
        self._decisions.load(self._storage.take_state(Space.HALF_MESSAGES))
        async for id, message in self._log.scan():
            if message.name:
                self._names.add(message, message.fingerprint, id)
            if self._decisions.outcome(id) is None:
                self._prepared(id, message)
            elif message.name:
                self._names.decided(message.full_name)
        self._following = self._log.end
        await self._take_back_lost_decisions()

    async def _take_back_lost_decisions(self) -> None:
        """Those of messages that are visible: damage has taken the decisions alone."""
        salvaged = self._storage.take_state(Space.SALVAGED)
        if not salvaged:
            return
        records = self._namespaces.routed_records()
        found, searched = await proven_commits(
            self._storage, salvaged, self._undecided, self._messages, records
        )
        outcomes = dict.fromkeys(found, True)
        removals = [Put(Space.SALVAGED, key, None) for key in searched]
        if found:
            log.warning("half messages %s are in their topics: they count as committed", sorted(found))
        try:
            await self._storage.commit([*self._decisions.puts(outcomes), *removals])
        except Unavailable as error:  # such as a full disk: the topics prove it to the next start as well
            log.warning("what was decided of half messages cannot be stored again: %s", error)
        self._decided(outcomes)

    def start(self) -> None:
        self._checking.start()

    async def stop(self) -> None:
        """When it returns, decisions that were made are written or have failed, and nobody is asked."""
        await self._checking.stop()
        if self._writing is not None:
            await asyncio.wait([self._writing])

    def ask_by(self, ask: Ask, *, is_taken: bool = False) -> None:
        """Producers of one protocol. If checks are taken by them, they count when `was_taken` is called, and
        otherwise when `ask` has returned True."""
        self._checks.ask_by(ask, is_taken=is_taken)

    def was_taken(self, id: int) -> None:
        """A producer has the check now, and time to answer until the next one."""
        self._checks.was_taken(id)

    def producer_came(self, group: str) -> None:
        """The first one of its group: it is asked soon about what was due while there was none."""
        self._checks.producer_came(group)

    async def check(self) -> None:
        """Ask producers for what they have not decided in time."""
        await self._checks.check()

    def __len__(self) -> int:
        """How many are undecided."""
        return len(self._undecided)

    def __iter__(self) -> Iterator[int]:
        """The ids of those that are undecided, in order."""
        return iter(self._undecided)

    # Preparing

    def check_available(self) -> None:
        """Raises BadRequest in a cluster."""
        if not self._is_alone:
            raise BadRequest("half messages need a broker that is alone; this one shares its storage")

    def prepare(
        self,
        topic: Topic,
        partition: int,
        key: bytes | None,
        value: bytes,
        headers: bytes,
        *,
        group: str,
        name: str = "",
        first_check_seconds: int = FIRST_CHECK_SECONDS,
        stored: Stored,
    ) -> None:
        """A record for a partition. `stored` is told the id when the message is durable. Raises
        UnknownPartition, RecordTooLarge, CorruptBatch, MissingKeys, NameTaken, AlreadyDecided, and
        Unavailable if too many are undecided."""
        topic.existing_partition(partition)
        check_record(topic, key, value, with_proof(headers, LARGEST_ID))
        content = Scheduled(
            due_ms=self._clock.now_ms(),
            namespace=DEFAULT_NAMESPACE,
            exchange=topic.name,
            key=key or b"",
            has_key=key is not None,
            value=value,
            headers=headers,
            partition=partition,
        )
        message = HalfMessage(group=group, name=name, content=content, first_check_s=first_check_seconds)
        self._prepare(message, stored)

    def prepare_routed(
        self,
        namespace: Namespace,
        exchange: str,
        key: bytes,
        value: bytes,
        envelope: Envelope,
        *,
        group: str,
        name: str,
        check_queue: str = "",
        first_check_seconds: int = FIRST_CHECK_SECONDS,
        stored: Stored,
    ) -> None:
        """A message for an exchange, which is routed when it is committed. Raises UnknownExchange,
        RecordTooLarge, InvalidTimestamp, InvalidRecord, and what `prepare` does about names and numbers."""
        namespace.check_size(namespace.exchange(exchange), key, value, envelope)
        now = self._clock.now_ms()
        # A delay that is too long must not be found out by the commit.
        namespace.stored_publish(exchange, key, b"", envelope, now + envelope.delay_ms)
        content = namespace.stored_publish(exchange, key, value, envelope, now)
        message = HalfMessage(
            group=group,
            name=name,
            content=content,
            first_check_s=first_check_seconds,
            check_queue=check_queue,
            delay_ms=envelope.delay_ms,
            headers_when_due=envelope.headers_when_due,
        )
        self._prepare(message, stored)

    def _prepare(self, message: HalfMessage, stored: Stored) -> None:
        self.check_available()
        name = message.full_name if message.name else None
        if name is not None:
            fingerprint = message.fingerprint
            if (known := self._names.find(name)) is not None:
                self._prepared_before(name, known, fingerprint, stored)
                return
        if len(self._undecided) >= MOST_UNDECIDED:
            raise Unavailable(f"{MOST_UNDECIDED} half messages are undecided; decide some of them first")
        if name is not None:
            self._names.add(message, fingerprint)

        def written(result: int | PosthouseError) -> None:
            if isinstance(result, int):
                self._prepared(result, message)
                self._recent.add(result, message)
            stored(result)
            if name is not None:
                self._names.written(name, result)

        self._log.append(message, written)

    def _prepared_before(self, name: FullName, known: Named, fingerprint: bytes, stored: Stored) -> None:
        if known.fingerprint != fingerprint:
            raise NameTaken(f"group {name.group!r} has another half message with the name {name.name!r}")
        if known.id is None:
            known.waiting.append(stored)
            return
        if (outcome := self._outcome(known.id)) is not None:
            raise AlreadyDecided(f"half message {name.name!r} was {_past(outcome)} before")
        asyncio.get_running_loop().call_soon(stored, known.id)

    def _prepared(self, id: int, message: HalfMessage) -> None:
        self._undecided[id] = Undecided(message, self._clock.monotonic())
        self._following = id + 1
        self._checks.plan(id, message)

    # Looking

    def find(self, id: int) -> Undecided | None:
        """None if it is decided, or nothing is known of it."""
        return self._undecided.get(id)

    def id_of(self, name: FullName) -> int:
        """Raises UnknownTransaction."""
        known = self._names.find(name)
        if known is None:
            raise UnknownTransaction(f"group {name.group!r} has no half message {name.name!r}")
        if known.id is None:
            raise UnknownTransaction(f"half message {name.name!r} is not on disk yet: wait for its confirm")
        return known.id

    def topics_of(self, id: int) -> Sequence[str]:
        """The topics that an undecided message is for: who decides must be allowed to write to them."""
        known = self._undecided.get(id)
        return () if known is None else known.topics

    def topics_of_name(self, name: FullName) -> Sequence[str]:
        """The same, also of one that was decided; nothing if there is no such message."""
        known = self._names.find(name)
        return () if known is None else known.topics

    async def message(self, id: int) -> HalfMessage:
        """One that the log still has, decided or not. Raises UnknownTransaction, Unavailable and
        DataDamaged."""
        if not self._log.start <= id < self._log.end:
            raise UnknownTransaction(f"nothing is known of half message {id}")
        messages = await self._messages([id])
        if id not in messages:
            raise DataDamaged(f"half message {id} cannot be read")
        return messages[id]

    def _outcome(self, id: int) -> bool | None:
        deciding = self._deciding.get(id)
        return self._decisions.outcome(id) if deciding is None else deciding.is_commit

    # Deciding

    def decide(self, id: int, *, group: str, commit: bool) -> "asyncio.Future[bool]":
        """The future is done when the decision is durable, and a committed message visible: whether a
        partition or a queue has got it. To decide the same again is fine. Raises AlreadyDecided, and
        UnknownTransaction if nothing is known of it, or it is of another group; the future fails with
        Unavailable, or with what the topic, the exchange or a full queue has against the message."""
        known = self._undecided.get(id)
        if known is not None and known.group != group:
            raise UnknownTransaction(f"half message {id} is of another group than {group!r}")
        deciding = self._deciding.get(id)
        outcome = self._outcome(id)
        if deciding is None and known is not None:
            return self._decide(id, Decision(is_commit=commit))
        if outcome is None:
            raise UnknownTransaction(f"nothing is known of half message {id}")
        if outcome != commit:
            raise AlreadyDecided(f"half message {id} was {_past(outcome)} before")
        if deciding is not None:
            return deciding.done
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        done.set_result(True)
        return done

    def _park(self, id: int) -> None:
        self._decide(id, Decision(is_commit=False, is_parked=True))

    def _decide(self, id: int, decision: Decision) -> "asyncio.Future[bool]":
        self._deciding[id] = decision
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write_all(), name="half messages")
        return decision.done

    async def _write_all(self) -> None:
        try:
            await asyncio.sleep(0)  # those of one turn of the event loop share a wave
            while self._deciding:
                batch = dict(islice(self._deciding.items(), _AT_ONCE))
                try:
                    await self._write(batch)
                except PosthouseError as error:
                    for id, decision in batch.items():
                        self._failed(id, decision, error)
                except Exception as error:
                    log.exception("half messages: decisions failed by an error of the broker itself")
                    for id, decision in batch.items():
                        self._failed(id, decision, Unavailable(f"the decision failed: {error!r}"))
        finally:
            self._writing = None

    async def _write(self, batch: dict[int, Decision]) -> None:
        messages = await self._messages([id for id, each in batch.items() if each.needs_message])
        if any(each.is_parked for each in batch.values()):
            await self._create_parked_topic()
        wave, records = self._namespaces.resources.transaction(), self._namespaces.routed_records()
        outcomes: dict[int, bool] = {}
        routed: dict[int, bool] = {}
        for id, decision in batch.items():
            try:
                if decision.needs_message and id not in messages:
                    raise DataDamaged(f"half message {id} cannot be read")
                if decision.is_parked:
                    park(messages[id], records, wave)
                elif decision.is_commit:
                    message = messages[id]
                    routed[id] = self._namespaces.publish_stored(
                        published(message, id, records),
                        records,
                        wave,
                        delay_ms=message.delay_ms,
                        headers_when_due=message.headers_when_due,
                        partial=False,
                    )
            except PosthouseError as error:
                self._failed(id, decision, error)
            else:
                outcomes[id] = decision.is_commit
        for put in self._decisions.puts(outcomes):
            wave.put(put)
        await wave.commit()
        self._decided(outcomes)
        for id in outcomes:
            self._count(batch[id])
            self._deciding.pop(id).end(routed.get(id, True))
        await self._release()

    def _decided(self, outcomes: Mapping[int, bool]) -> None:
        """They are durable."""
        self._decisions.apply(outcomes)
        for id in outcomes:
            name = self._undecided.pop(id).name
            if name is not None:
                self._names.decided(name)
            self._recent.forget(id)

    def _count(self, decision: Decision) -> None:
        if decision.is_commit:
            self.committed += 1
        elif decision.is_parked:
            self.parked += 1
        else:
            self.rolled_back += 1

    def _failed(self, id: int, decision: Decision, error: PosthouseError) -> None:
        """It stays undecided."""
        if self._deciding.get(id) is decision:
            del self._deciding[id]
            decision.end(error)

    async def _messages(self, ids: Sequence[int]) -> dict[int, HalfMessage]:
        """Those that can be read."""
        messages = {id: recent for id in ids if (recent := self._recent.get(id)) is not None}
        if missing := [id for id in ids if id not in messages]:
            messages |= await self._log.read(missing)
        return messages

    async def _release(self) -> None:
        """Free what nobody asks for any more, now and then."""
        floor = next(iter(self._undecided), self._following)
        if floor - self._log.start >= BLOCK:
            outdated = self._decisions.outdated(floor)
            await self._log.trim(floor, self._decisions.removals(outdated))
            self._decisions.forget(outdated)

    async def _create_parked_topic(self) -> None:
        [created] = await self._create_topics([NewTopic(name=PARKED_TOPIC, partitions=1)])
        if isinstance(created, PosthouseError) and not isinstance(created, TopicExists):
            raise created


def _past(outcome: bool) -> str:
    return "committed" if outcome else "rolled back, or parked"
