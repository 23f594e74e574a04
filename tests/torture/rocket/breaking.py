"""Brokers that break their promises to consumers by the remoting protocol, for negative controls."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

from posthouse.broker.delayed_records import DelayedRecords
from posthouse.broker.record_waves import RecordWaves
from posthouse.model.errors import PosthouseError
from posthouse.model.topics import Topic
from posthouse.protocols.rocketmq.codec.bodies import MessageQueue
from posthouse.protocols.rocketmq.queue_locks import QueueLocks
from posthouse.protocols.rocketmq.remoting.handlers import retries

_LATER_SECONDS: Final = 1.0


def share_locks() -> None:
    """Whoever wants to lock a queue is told that it has the lock."""

    def lock(
        locks: QueueLocks, group: str, client: str, queues: Iterable[MessageQueue]
    ) -> list[MessageQueue]:
        return list(queues)

    QueueLocks.lock = lock  # type: ignore[method-assign, assignment]


def drop_dead_letters() -> None:
    """They are taken, and never stored."""
    add = RecordWaves.add

    def dropped(waves: RecordWaves, topic: Topic, partition: int, *record: Any) -> None:
        if topic.name.startswith(".DLQ."):
            asyncio.get_running_loop().call_soon(record[-1], 0)
        else:
            add(waves, topic, partition, *record)

    RecordWaves.add = dropped  # type: ignore[method-assign, assignment]


def retry_for_ever() -> None:
    """No message becomes a dead letter because it was tried often enough."""
    send_back = retries._send_back

    async def again(call: Any, *message: Any) -> None:
        call.request.fields["maxReconsumeTimes"] = str(2**31 - 1)
        await send_back(call, *message)

    retries._send_back = again  # type: ignore[assignment]


def answer_retries_too_early() -> None:
    """What was sent back is taken before it is stored."""
    add = DelayedRecords.add

    def early(
        delayed: DelayedRecords,
        topic: Topic,
        partition: int,
        *record: Any,
    ) -> Any:
        if not topic.name.startswith(".RETRY."):
            return add(delayed, topic, partition, *record)
        loop = asyncio.get_running_loop()
        loop.call_later(_LATER_SECONDS, lambda: add(delayed, topic, partition, *(*record[:-1], _ignored)))
        loop.call_soon(record[-1], None)
        return None

    DelayedRecords.add = early  # type: ignore[method-assign, assignment]


def _ignored(result: PosthouseError | None) -> None:
    """No-op."""


BREAKING: Final[tuple[tuple[Callable[[], None], str], ...]] = (
    (share_locks, "shared lease"),
    (drop_dead_letters, "lost dead letter|lost message"),
    (retry_for_ever, "too many deliveries"),
    (answer_retries_too_early, "lost message"),
)
"""With what one of the anomalies must say."""
