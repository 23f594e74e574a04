"""Every failpoint is passed in the life of a broker, so that each of them can strike."""

from collections import Counter
from pathlib import Path
from random import Random

from posthouse.model.clock import ManualClock
from posthouse.storage.files.engine import FileStorage
from tests.storage.batches import append, make_topic
from tests.torture.kinds.failpoints import PLACES, Failpoint, FailpointDisk, guard


class Passing(Failpoint):
    """Counts, and lets everybody live."""

    def __init__(self) -> None:
        super().__init__("nowhere", "never", 0)
        self.seen: Counter[tuple[str, str]] = Counter()

    def passed(self, place: str, when: str) -> bool:
        self.seen[place, when] += 1
        return False


async def test_every_place_is_passed(tmp_path: Path) -> None:
    failpoint = Passing()
    topic = make_topic(segment_bytes="400")
    for life in range(2):
        storage = FileStorage(
            tmp_path, clock=ManualClock(), journal_bytes=2000, disk=FailpointDisk(failpoint)
        )
        guard(storage._catalog, failpoint)
        await storage.open()
        if not life:
            await storage.create_topics([topic])
        for number in range(50):
            await storage.commit([append(topic.partition(0), b"%d" % number * 20)])
        await storage.checkpoint()
        await storage.close()
    for place in PLACES:
        assert failpoint.seen[place, "before"] and failpoint.seen[place, "after"], place
    for place in ("journal-write", "segment-write", "index-write"):
        assert failpoint.seen[place, "half"], place


def test_a_failpoint_strikes_once_at_its_count() -> None:
    failpoint = Failpoint.parse("journal-sync:after:3")
    passes = [("journal-sync", "before"), ("journal-sync", "after")] * 5
    assert [failpoint.passed(*each) for each in passes].index(True) == 5
    assert str(Failpoint.parse(str(failpoint))) == str(failpoint)


def test_all_kinds_of_failpoints_are_drawn() -> None:
    random = Random(1)
    drawn = [Failpoint.draw(random) for _ in range(2000)]
    assert {each.place for each in drawn} == set(PLACES)
    assert {each.when for each in drawn} == {"before", "half", "after"}
