"""What other brokers tell of their clients: how long it counts, and that a report is bounded."""

import math
from uuid import UUID, uuid4

from posthouse.broker.cluster_usage import MOST_TOLD, NO_OTHERS, REPORT_SECONDS, ClusterUsage
from posthouse.model.clock import ManualClock
from posthouse.model.usage import KEY_BYTES, Limited, ToldUse, Use

SECRET = b"s" * 32
ONE, TWO = uuid4(), uuid4()


class Others:
    def __init__(self, *live: UUID) -> None:
        self.clock = ManualClock()
        self.live = set(live)
        self.usage = ClusterUsage(SECRET, self.clock, lambda: self.live)

    def tell(self, broker: UUID, *uses: Use) -> None:
        self.usage.told(broker, ClusterUsage(SECRET, self.clock, lambda: {ONE}).report(uses))

    def connections(self, name: str = "10.0.0.1") -> int:
        return self.usage.connections(Limited.ADDRESS, name)


def address(count: int, name: str = "10.0.0.1", limit: int = 100) -> Use:
    return Use(Limited.ADDRESS, name, count, limit)


def test_the_connections_of_all_others_count() -> None:
    others = Others(ONE, TWO)
    others.tell(ONE, address(3), address(7, "10.0.0.2"))
    others.tell(TWO, address(4))
    assert others.connections() == 7
    assert others.connections("10.0.0.3") == 0
    assert others.usage.connections(Limited.USER, "10.0.0.1") == 0, "of another kind"


def test_only_the_newest_report_counts() -> None:
    others = Others(ONE)
    others.tell(ONE, address(3))
    others.tell(ONE, address(2))
    assert others.connections() == 2
    others.tell(ONE)
    assert others.connections() == 0


def test_a_broker_that_is_not_heard_of_counts_no_more() -> None:
    others = Others(ONE, TWO)
    others.tell(ONE, address(3))
    others.clock.advance(REPORT_SECONDS / 2)
    others.tell(TWO, address(1))
    others.clock.advance(REPORT_SECONDS / 2)
    assert others.connections() == 4
    others.clock.advance(0.1)
    assert others.connections() == 1


def test_a_broker_that_is_lost_or_dead_counts_no_more() -> None:
    others = Others(ONE, TWO)
    others.tell(ONE, address(3))
    others.tell(TWO, address(4))
    others.usage.told(ONE, None)
    assert others.connections() == 4
    others.live.discard(TWO)
    assert others.connections() == 0


def test_reports_of_brokers_that_are_gone_take_no_memory() -> None:
    others = Others()
    for _ in range(100):
        others.tell(uuid4(), address(1))
        others.clock.advance(REPORT_SECONDS + 1)
    assert len(others.usage._reports) == 1


def test_what_others_need() -> None:
    others = Others(ONE, TWO)
    written = Limited.WRITTEN
    assert others.usage.needs(written, "ann") == [math.inf, math.inf], "none of them has told anything"
    others.tell(ONE)
    others.tell(TWO, Use(written, "ann", 30.5, 100, wants_more=False))
    assert sorted(others.usage.needs(written, "ann")) == [0, 31]
    others.tell(TWO, Use(written, "ann", 50, 100, wants_more=True))
    assert sorted(others.usage.needs(written, "ann")) == [0, math.inf]
    assert others.usage.needs(Limited.READ, "ann") == [0, 0]


def test_a_report_has_those_that_use_most_of_their_limit() -> None:
    others = Others(ONE)
    many = [address(number % 50, str(number)) for number in range(20_000)]
    near = [Use(Limited.USER, "ann", 9, 10), Use(Limited.READ, "ben" * 1000, 10**12, 10**12)]
    report = others.usage.report([*many, *near])
    assert len(report) == MOST_TOLD
    assert {len(each.key) for each in report} == {KEY_BYTES}
    others.usage.told(ONE, report)
    assert others.usage.connections(Limited.USER, "ann") == 9
    assert others.usage.needs(Limited.READ, "ben" * 1000) == [10**12]


def test_what_is_not_told_is_little() -> None:
    """Of a limit of 100 at three brokers, the two others leave out less than a tenth of it."""
    others = Others(ONE, TWO)
    assert 2 * others.usage.least_told * 100 < 10
    assert others.usage.least_told * 10 < 1, "of a small limit a single connection is told"


def test_names_are_hashed_with_the_secret() -> None:
    uses = [address(1)]
    [first] = ClusterUsage(SECRET, ManualClock(), tuple).report(uses)
    [second] = ClusterUsage(b"t" * 32, ManualClock(), tuple).report(uses)
    assert first.key != second.key


def test_a_name_that_is_not_unicode() -> None:
    assert isinstance(NO_OTHERS.report([address(1, "\udcff")])[0], ToldUse)


def test_a_broker_that_is_alone() -> None:
    assert NO_OTHERS.connections(Limited.ADDRESS, "10.0.0.1") == 0
    assert NO_OTHERS.needs(Limited.WRITTEN, "ann") == []
