"""Kills under load: what was acknowledged stays, what was seen stays, in its place and order."""

from pathlib import Path
from random import Random

import pytest

from tests.checker.history import Poll, Send
from tests.checker.judge import check
from tests.checker.report import Kind
from tests.crash.loads import Recorder
from tests.crash.orders import check_orders
from tests.crash.served import BrokerProcess, broker, forget
from tests.crash.stream_load import TOPIC, StreamLoad, create_topics, read_everything
from tests.stored import IS_SHARED

_CONFIG = {"internal.segment.bytes": "65536"}


@pytest.mark.timeout(1200 if IS_SHARED else 420)  # commits and starts take longer on a database
@pytest.mark.parametrize("rounds", [8, pytest.param(50, marks=pytest.mark.long)])
def test_kills_lose_nothing_acknowledged_and_nothing_seen(tmp_path: Path, rounds: int) -> None:
    random = Random(4711)
    recorder = Recorder()
    clients = StreamLoad(recorder)
    for number in range(rounds):
        with broker(tmp_path) as process:
            if number == 0:
                create_topics(process.bootstrap, TOPIC, config=_CONFIG)
            elif number % 10 == 4:
                _judge(recorder, process)
            load = clients.start(process.bootstrap, number)
            recorder.wait_for_more({Send: random.randrange(1, 800), Poll: 1})
            load.end_with(process)
    with broker(tmp_path) as process:
        _judge(recorder, process)


def _judge(recorder: Recorder, process: BrokerProcess) -> None:
    reads = read_everything(process.bootstrap, TOPIC)
    for read in reads:
        assert len(read.records) == read.end - read.start, "an offset has no record"
    recorder.add(*reads)
    assert check(recorder.history).anomalies == []
    assert check_orders(recorder.history) == []


@pytest.mark.skipif(IS_SHARED, reason="cuts the files of a data directory")
def test_the_check_fails_when_the_disk_forgets(tmp_path: Path) -> None:
    recorder = Recorder()
    clients = StreamLoad(recorder)
    with broker(tmp_path) as process:
        create_topics(process.bootstrap, TOPIC, config=_CONFIG)
        load = clients.start(process.bootstrap, 0)
        recorder.wait_for_more({Send: 500, Poll: 1})
        load.end_with(process)
    forget(tmp_path)
    with broker(tmp_path) as process:
        recorder.add(*read_everything(process.bootstrap, TOPIC))
    assert {Kind.LOST_WRITE, Kind.DIRTY_VISIBILITY} <= check(recorder.history).kinds
