"""Manifests that come in parts, each of another moment."""

from typing import Any

import pytest

from posthouse.client.cluster import Cluster
from posthouse.client.errors import IncompatibleBroker, RequestRefused
from posthouse.client.manifests import (
    AbortedTransaction,
    NoSegmentObjects,
    WantedRange,
    release_hold,
    renew_hold,
    segment_manifest,
)
from posthouse.protocols.kafka.codec.own.renew_hold import RenewHoldRequest, RenewHoldResponse
from posthouse.protocols.kafka.codec.own.segment_manifest import (
    AbortedTransactionPart,
    SegmentManifestAnswer,
    SegmentManifestRequest,
    SegmentManifestResponse,
    SegmentPart,
)

HOLD = bytes(range(16))
TOPIC = bytes(16)


class Answering(Cluster):
    """Gives prepared answers, or raises them."""

    def __init__(self, *answers: Any) -> None:
        self.asked: list[Any] = []
        self._answers = list(answers)

    def any(self) -> Any:
        return self

    def ask(self, request: Any, answer: type) -> Any:
        self.asked.append(request)
        found = self._answers.pop(0)
        if isinstance(found, Exception):
            raise found
        assert isinstance(found, answer)
        return found


def part(
    next: int, *segments: tuple[int, int], aborted: tuple[int, int] | None = None
) -> SegmentManifestAnswer:
    return SegmentManifestAnswer(
        next=next,
        segments=[SegmentPart(address="key", size=9, base=base, last=last) for base, last in segments],
        aborted=[AbortedTransactionPart(producer_id=7, first=aborted[0], last=aborted[1])] if aborted else [],
    )


def told(*answers: SegmentManifestAnswer, hold: bytes = HOLD) -> SegmentManifestResponse:
    return SegmentManifestResponse(hold=hold, ranges=list(answers))


def test_ranges_are_asked_for_until_they_are_complete() -> None:
    cluster = Answering(
        told(part(4, (0, 3)), part(9)), told(part(6, (4, 5))), told(part(9, (6, 7)), hold=HOLD)
    )
    wanted = [WantedRange(TOPIC, 0, 0, 9), WantedRange(TOPIC, 1, 5, 9), WantedRange(TOPIC, 2, 5, 5)]
    found = segment_manifest(cluster, wanted)
    assert [[(each.base, each.last) for each in some.segments] for some in found.ranges] == [
        [(0, 3), (4, 5), (6, 7)],
        [],
        [],
    ]
    assert found.hold == HOLD
    assert [[(each.partition, each.first) for each in asked.ranges] for asked in cluster.asked] == [
        [(0, 0), (1, 5)],
        [(0, 4)],
        [(0, 6)],
    ]
    assert [asked.hold for asked in cluster.asked] == [bytes(16), HOLD, HOLD]


def test_a_transaction_is_told_of_the_segments_of_its_answer() -> None:
    """The next answer is of a later moment: compaction may have removed the transaction and its marker."""
    cluster = Answering(told(part(4, (0, 3), aborted=(1, 6))), told(part(9, (4, 8))))
    [found] = segment_manifest(cluster, [WantedRange(TOPIC, 0, 0, 9)]).ranges
    assert found.aborted == (AbortedTransaction(7, 1, 3),)
    cluster = Answering(told(part(4, (0, 3), aborted=(1, 6))), told(part(9, (4, 8), aborted=(1, 6))))
    [found] = segment_manifest(cluster, [WantedRange(TOPIC, 0, 0, 9)]).ranges
    assert found.aborted == (AbortedTransaction(7, 1, 3), AbortedTransaction(7, 1, 6))


def test_a_range_that_is_refused_has_no_objects() -> None:
    cluster = Answering(told(SegmentManifestAnswer(error_code=1, next=0)))
    [found] = segment_manifest(cluster, [WantedRange(TOPIC, 0, 0, 9)]).ranges
    assert found.segments == ()


def test_an_answer_that_leads_nowhere_is_not_asked_for_for_ever() -> None:
    cluster = Answering(*[told(part(0)) for _ in range(9)])
    segment_manifest(cluster, [WantedRange(TOPIC, 0, 0, 9)])
    assert len(cluster.asked) == 9


def test_what_is_asked_for() -> None:
    cluster = Answering(told(part(9), hold=bytes(16)))
    found = segment_manifest(cluster, [WantedRange(TOPIC, 3, 5, 9)], committed=False, signed=False, hold=HOLD)
    [request] = cluster.asked
    assert isinstance(request, SegmentManifestRequest)
    assert (request.isolation_level, request.is_signed, request.hold) == (0, False, HOLD)
    assert found.hold is None


@pytest.mark.parametrize(
    "answer",
    [IncompatibleBroker("Kafka"), SegmentManifestResponse(error_code=35, error_message="on its own disk")],
)
def test_brokers_without_objects(answer: object) -> None:
    with pytest.raises(NoSegmentObjects):
        segment_manifest(Answering(answer), [WantedRange(TOPIC, 0, 0, 9)])


def test_refusals() -> None:
    with pytest.raises(RequestRefused):
        segment_manifest(Answering(SegmentManifestResponse(error_code=41)), [WantedRange(TOPIC, 0, 0, 9)])
    with pytest.raises(RequestRefused):
        renew_hold(Answering(RenewHoldResponse(error_code=41)), HOLD)


def test_holds() -> None:
    cluster = Answering(
        RenewHoldResponse(is_held=True), RenewHoldResponse(is_held=False), RenewHoldResponse()
    )
    assert renew_hold(cluster, HOLD)
    assert not renew_hold(cluster, HOLD)
    release_hold(cluster, HOLD)
    assert cluster.asked[-1] == RenewHoldRequest(hold=HOLD, is_released=True)
