"""The half messages of a broker: prepared, decided once, and asked about until they are.

    prepare ──► undecided ──commit──► in their topic
                    │ ▲ └──roll back──► nowhere
              check └─┘ └──the last check──► parked

A decision and what follows from it (the message in its topic, with its references for queues) are one commit,
so a message is visible if and only if it is committed. Decisions are written in waves, one after the other: a
bit of a later wave must not say more than what earlier ones have made durable.

A check asks any live producer of the group. As long as there is none, checks are put off and do not count.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from heapq import heappop, heappush
from itertools import islice
from sys import intern
from typing import Final, TypeAlias

from posthouse.broker.half_messages.decisions import BLOCK, Decisions
from posthouse.broker.half_messages.half_log import HalfLog
from posthouse.broker.half_messages.half_message import HalfMessage
from posthouse.broker.housekeeping import Housekeeping
from posthouse.broker.queues.routed_records import RoutedRecords
from posthouse.broker.queues.transaction_wave import TransactionWave
from posthouse.broker.record_limits import check_record
from posthouse.broker.topics import NewTopic
from posthouse.model.clock import Clock
from posthouse.model.errors import (
    AlreadyDecided,
    DataDamaged,
    PosthouseError,
    TopicExists,
    Unavailable,
    UnknownTransaction,
)
from posthouse.model.topics import Topic
from posthouse.records.header_section import decode_section, encode_section
from posthouse.storage.contract import Storage
from posthouse.storage.spaces import Space

log = logging.getLogger(__name__)

FIRST_CHECK_SECONDS: Final = 6
CHECK_SECONDS: Final = 30
MOST_CHECKS: Final = 15
LONGEST_SECONDS: Final = 72 * 3600
"""After so long without a producer to ask, a message is parked, too. Counted since the broker has started."""
MOST_UNDECIDED: Final = 1_000_000
"""Each takes some 200 bytes of memory."""
PARKED_TOPIC: Final = "posthouse.undecided"
_PARKED_HEADERS: Final = (b"posthouse.half-topic", b"posthouse.half-partition", b"posthouse.half-group")
_AT_ONCE: Final = 1000
_LOOK_SECONDS: Final = 1.0
_CACHED_BYTES: Final = 32 * 1024 * 1024
"""Bodies of messages that were just prepared: most are decided within milliseconds."""

Ask: TypeAlias = Callable[[int, HalfMessage], bool]
"""Asks a producer of the message's group what was decided of the message with this id. False if no producer
is connected."""
CreateTopics: TypeAlias = Callable[[Sequence[NewTopic]], Awaitable[list[Topic | PosthouseError]]]


class _Undecided:
    __slots__ = ("checks", "group", "since", "topic")

    def __init__(self, group: str, topic: str, since: float) -> None:
        self.group = group
        self.topic = topic
        self.since = since
        """Monotonic: a clock that is set must park nothing, and put off no check."""
        self.checks = 0


class _Decision:
    __slots__ = ("done", "is_commit", "is_parked")

    def __init__(self, *, is_commit: bool, is_parked: bool = False) -> None:
        self.is_commit = is_commit
        self.is_parked = is_parked
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.done.add_done_callback(_retrieved)

    @property
    def needs_message(self) -> bool:
        return self.is_commit or self.is_parked

    def end(self, error: PosthouseError | None = None) -> None:
        """It is durable, or has failed. Whoever waited may be gone."""
        if self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)


def _retrieved(done: "asyncio.Future[None]") -> None:
    """Not everybody who decides waits for what becomes of it."""
    if not done.cancelled():
        done.exception()


class HalfMessages:
    """Owned by the event loop. Of a broker that is alone: in a cluster nothing can be prepared."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        half_log: HalfLog,
        new_wave: Callable[[], TransactionWave],
        routed_records: Callable[[], RoutedRecords],
        create_topics: CreateTopics,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._log = half_log
        self._new_wave = new_wave
        self._routed_records = routed_records
        self._create_topics = create_topics
        self._decisions = Decisions()
        self._undecided: dict[int, _Undecided] = {}
        """In the order of their ids."""
        self._following = 0
        """The id behind the last one that is known."""
        self._checks: list[tuple[float, int]] = []
        """A heap of monotonic times, and ids."""
        self._deciding: dict[int, _Decision] = {}
        """In the wave that is being written, and in the next ones."""
        self._recent: OrderedDict[int, HalfMessage] = OrderedDict()
        self._recent_bytes = 0
        self._writing: asyncio.Task[None] | None = None
        self._checking = Housekeeping([self.check], _LOOK_SECONDS)
        self._askers: list[Ask] = []
        self.committed = 0
        """Since the broker has started, as those below."""
        self.rolled_back = 0
        self.parked = 0

    # Life

    async def load(self) -> None:
        """What is stored: once, before `start`. Raises Unavailable."""
        self._log.load()
        self._decisions.load(self._storage.take_state(Space.HALF_MESSAGES))
        async for id, message in self._log.scan(lambda id: self._decisions.outcome(id) is None):
            self._prepared(id, message)
        self._following = self._log.end

    def start(self) -> None:
        self._checking.start()

    async def stop(self) -> None:
        """When it returns, decisions that were made are written or have failed, and nobody is asked."""
        self._is_stopping = True
        await self._checking.stop()
        if self._writing is not None:
            await asyncio.wait([self._writing])

    def ask_by(self, ask: Ask) -> None:
        """Producers of one protocol."""
        self._askers.append(ask)

    def __len__(self) -> int:
        """How many are undecided."""
        return len(self._undecided)

    # Preparing

    def prepare(
        self,
        topic: Topic,
        partition: int,
        key: bytes | None,
        value: bytes,
        headers: bytes,
        *,
        group: str,
        first_check_seconds: int = FIRST_CHECK_SECONDS,
        stored: Callable[[int | PosthouseError], None],
    ) -> None:
        """`stored` is told the id when the message is durable. Raises UnknownPartition, RecordTooLarge,
        MissingKeys, and Unavailable if too many are undecided."""
        topic.existing_partition(partition)
        check_record(topic, key, value, headers)
        if len(self._undecided) >= MOST_UNDECIDED:
            raise Unavailable(f"{MOST_UNDECIDED} half messages are undecided; decide some of them first")
        message = HalfMessage(
            group=group,
            topic=topic.name,
            partition=partition,
            key=key,
            value=value,
            headers=headers,
            prepared_ms=self._clock.now_ms(),
            first_check_s=first_check_seconds,
        )

        def written(result: int | PosthouseError) -> None:
            if isinstance(result, int):
                self._prepared(result, message)
                self._remember(result, message)
            stored(result)

        self._log.append(message, written)

    def _prepared(self, id: int, message: HalfMessage) -> None:
        now = self._clock.monotonic()
        self._undecided[id] = _Undecided(intern(message.group), intern(message.topic), now)
        self._following = id + 1
        old = (self._clock.now_ms() - message.prepared_ms) / 1000
        left = min(max(message.first_check_s - old, 0), message.first_check_s)
        heappush(self._checks, (now + left, id))

    def _remember(self, id: int, message: HalfMessage) -> None:
        self._recent[id] = message
        self._recent_bytes += message.size
        while self._recent_bytes > _CACHED_BYTES:
            _, oldest = self._recent.popitem(last=False)
            self._recent_bytes -= oldest.size

    def _forget(self, id: int) -> None:
        known = self._recent.pop(id, None)
        if known is not None:
            self._recent_bytes -= known.size

    # Deciding

    def topic_of(self, id: int) -> str | None:
        """The topic that an undecided message is for: who decides must be allowed to write to it."""
        known = self._undecided.get(id)
        return None if known is None else known.topic

    def decide(self, id: int, *, group: str, commit: bool) -> "asyncio.Future[None]":
        """The future is done when the decision is durable, and a committed message visible. To decide the
        same again is fine. Raises AlreadyDecided, and UnknownTransaction if nothing is known of it, or it is
        of another group; the future fails with Unavailable, or with what the topic has against the
        message."""
        known = self._undecided.get(id)
        if known is not None and known.group != group:
            raise UnknownTransaction(f"half message {id} is of another group than {group!r}")
        deciding = self._deciding.get(id)
        outcome = self._decisions.outcome(id) if deciding is None else deciding.is_commit
        if deciding is None and known is not None:
            return self._decide(id, _Decision(is_commit=commit))
        if outcome is None:
            raise UnknownTransaction(f"nothing is known of half message {id}")
        if outcome != commit:
            was = "committed" if outcome else "rolled back, or parked"
            raise AlreadyDecided(f"half message {id} was {was} before")
        if deciding is not None:
            return deciding.done
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def _decide(self, id: int, decision: _Decision) -> "asyncio.Future[None]":
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

    async def _write(self, batch: dict[int, _Decision]) -> None:
        messages = await self._messages([id for id, each in batch.items() if each.needs_message])
        if any(each.is_parked for each in batch.values()):
            await self._create_parked_topic()
        wave, records = self._new_wave(), self._routed_records()
        outcomes: dict[int, bool] = {}
        for id, decision in batch.items():
            try:
                if decision.needs_message:
                    if id not in messages:
                        raise DataDamaged(f"half message {id} cannot be read")
                    _add(records, messages[id], wave, is_parked=decision.is_parked)
            except PosthouseError as error:
                self._failed(id, decision, error)
            else:
                outcomes[id] = decision.is_commit
        for put in self._decisions.puts(outcomes):
            wave.put(put)
        await wave.commit()
        self._decisions.apply(outcomes)
        for id in outcomes:
            del self._undecided[id]
            self._forget(id)
            self._count(batch[id])
            self._deciding.pop(id).end()
        await self._release()

    def _count(self, decision: _Decision) -> None:
        if decision.is_commit:
            self.committed += 1
        elif decision.is_parked:
            self.parked += 1
        else:
            self.rolled_back += 1

    def _failed(self, id: int, decision: _Decision, error: PosthouseError) -> None:
        """It stays undecided."""
        if self._deciding.get(id) is decision:
            del self._deciding[id]
            decision.end(error)

    async def _messages(self, ids: Sequence[int]) -> dict[int, HalfMessage]:
        """Those that can be read."""
        messages = {id: self._recent[id] for id in ids if id in self._recent}
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

    # Checking

    async def check(self) -> None:
        """Ask producers for what they have not decided in time."""
        now = self._clock.monotonic()
        due: list[int] = []
        while self._checks and self._checks[0][0] <= now and len(due) < _AT_ONCE:
            _, id = heappop(self._checks)
            if id in self._undecided and id not in self._deciding:
                due.append(id)
        try:
            messages = await self._messages(due)
        except PosthouseError:
            for id in due:
                heappush(self._checks, (now + CHECK_SECONDS, id))
            raise
        for id in due:
            known = self._undecided.get(id)
            if known is None or id in self._deciding:
                continue  # decided meanwhile
            if id not in messages:
                log.error("half message %d of group %s is damaged: nobody can be asked", id, known.group)
                continue
            heappush(self._checks, (now + CHECK_SECONDS, id))
            if not self._is_asked(id, known, messages[id], now):
                log.warning(
                    "half message %d of group %s is undecided for %d s: it is parked in topic %s",
                    id,
                    known.group,
                    now - known.since,
                    PARKED_TOPIC,
                )
                self._decide(id, _Decision(is_commit=False, is_parked=True))

    def _is_asked(self, id: int, known: _Undecided, message: HalfMessage, now: float) -> bool:
        """False if nobody is to be asked any more."""
        if known.checks >= MOST_CHECKS:
            return False
        if any(ask(id, message) for ask in self._askers):
            known.checks += 1
            return True
        return now - known.since < LONGEST_SECONDS


def _add(records: RoutedRecords, message: HalfMessage, wave: TransactionWave, *, is_parked: bool) -> None:
    topic, partition, headers = message.topic, message.partition, message.headers
    if is_parked:
        where = (message.topic.encode(), b"%d" % message.partition, message.group.encode())
        named = zip(_PARKED_HEADERS, where, strict=True)
        headers = encode_section([*named, *decode_section(headers)])
        topic, partition = PARKED_TOPIC, 0
    records.add(topic, partition, message.key, message.value, headers, wave)
