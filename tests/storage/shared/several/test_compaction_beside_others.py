"""Compaction on the coordinator, while other brokers write to the log."""

from typing import Any

import pytest

from posthouse.storage.shared.commits.commit_group import Answer
from tests.storage.compacted import Writer, compacted_topic, marker, put
from tests.storage.shared.several.brokers import Brokers, read_committed


async def test_an_abort_that_is_stored_but_not_answered_yet(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compaction learns from the database how far the log is stable. There it must learn of the abort, too:
    the aborted record would otherwise replace the committed one with the same key."""
    a, _, c = brokers
    topic = compacted_topic(segment_bytes="300")
    await brokers.create(topic)
    partition = topic.partition(0)
    await a.commit([put(partition, (b"key", b"committed"))])
    await a.commit([put(partition, (b"key", b"aborted"), writer=Writer(1, 0))])
    call = a._committer._inline.call
    commit = call.commit

    async def answered_late(*arguments: Any, **named: Any) -> Answer:
        answer = await commit(*arguments, **named)
        for number in range(8):
            await c.commit([put(partition, (b"%d" % number, b"x" * 60))])
        await a.compact()
        return answer

    with monkeypatch.context() as late:
        late.setattr(call, "commit", answered_late)
        await a.commit([marker(partition, 1, commit=False)])
    assert a.metrics.compacted_partitions == 1
    found = await read_committed(c, partition)
    assert b"committed" in found.values()
    assert b"aborted" not in found.values()
