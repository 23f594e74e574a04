"""Consumers that were told to read elsewhere, and ask here again."""

from posthouse.model.ids import PartitionId, TopicId
from posthouse.protocols.kafka.read_replicas import (
    AT_ONCE_SECONDS,
    MOST_TIMES,
    SERVED_SECONDS,
    ReadReplicas,
)

_ONE, _TWO = (PartitionId(TopicId(bytes(16)), index) for index in range(2))
_SOON = AT_ONCE_SECONDS / 2


def test_one_that_keeps_coming_back_at_once_is_served_for_a_while_and_told_again() -> None:
    told = ReadReplicas()
    at = 100.0
    for _ in range(3):
        for _ in range(MOST_TIMES):
            assert told.tell(_ONE, 7, at)
            at += _SOON
        assert not told.tell(_ONE, 7, at)
        assert not told.tell(_ONE, 7, at + SERVED_SECONDS - 0.1)
        at += SERVED_SECONDS


def test_one_that_has_followed_is_told_again_when_it_asks() -> None:
    told = ReadReplicas()
    for number in range(2 * MOST_TIMES):
        at = number * (_SOON + AT_ONCE_SECONDS)
        assert told.tell(_ONE, 7, at)
        assert told.tell(_ONE, 7, at + 0.1)


def test_one_is_told_of_another_broker_at_any_time() -> None:
    told = ReadReplicas()
    for node_id in (7, 8, 7):
        for _ in range(MOST_TIMES):
            assert told.tell(_ONE, node_id, 100.0)
        assert not told.tell(_ONE, node_id, 100.0)


def test_each_partition_counts_for_itself() -> None:
    told = ReadReplicas()
    for _ in range(MOST_TIMES):
        assert told.tell(_ONE, 7, 100.0)
    assert not told.tell(_ONE, 7, 100.1)
    assert told.tell(_TWO, 7, 100.1)
