"""Fifty kills under load: what was acknowledged stays, what was seen stays, in its place and order."""

from pathlib import Path
from random import Random

import pytest

from tests.crash.checker import History, check
from tests.crash.workload import Load, broker, create_topic, read_everything

ROUNDS = 50


@pytest.mark.timeout(420)
def test_fifty_kills_lose_nothing_acknowledged_and_nothing_seen(tmp_path: Path) -> None:
    random = Random(4711)
    history = History()
    for number in range(ROUNDS):
        acknowledged, seen = len(history.acknowledged), len(history.seen)
        with broker(tmp_path) as process:
            if number == 0:
                create_topic(process.bootstrap)
            elif number % 10 == 0:
                assert check(history, read_everything(process.bootstrap)) == []
            load = Load(process.bootstrap, history, number)
            load.start()
            load.wait_for(acknowledged=acknowledged + random.randrange(1, 800), seen=seen + 1)
            process.kill()
            load.finish()
    with broker(tmp_path) as process:
        assert check(history, read_everything(process.bootstrap)) == []


def test_the_check_fails_when_the_disk_forgets(tmp_path: Path) -> None:
    """The negative control: the same check, with the end of the log cut off while the broker is dead."""
    history = History()
    with broker(tmp_path) as process:
        create_topic(process.bootstrap)
        load = Load(process.bootstrap, history, 0)
        load.start()
        load.wait_for(acknowledged=500, seen=1)
        process.kill()
        load.finish()
    for journal in (tmp_path / "journal").glob("*.wal"):
        journal.unlink()
    for segment in (tmp_path / "topics").rglob("*.log"):
        with segment.open("r+b") as file:
            file.truncate(segment.stat().st_size // 2)
    with broker(tmp_path) as process:
        anomalies = check(history, read_everything(process.bootstrap))
    assert any("was acknowledged" in anomaly for anomaly in anomalies)
