"""Quix Streams: a count with state, exactly once, killed and started again with nothing but the changelog."""

import os
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from posthouse.testing import running_broker
from tests.frameworks.kafka.words import ROOT, Results, application, produce

PYTHON = ROOT / "build" / "quix" / "bin" / "python"
PROGRAM = Path(__file__).with_name("quix_program.py")

pytestmark = pytest.mark.skipif(
    not PYTHON.exists(),
    reason="Quix Streams needs an older confluent-kafka: 'make frameworks' makes it an environment",
)


def running(name: str, kafka: str, state: Path, *, killed: bool = False) -> AbstractContextManager[None]:
    command = [PYTHON, "-W", "ignore", PROGRAM, kafka, name, state]
    return application(command, os.environ, state.with_suffix(".log"), killed=killed)


@pytest.mark.timeout(300)
def test_a_count_survives_a_kill_exactly_once(name: str, tmp_path: Path) -> None:
    with running_broker(data=tmp_path / "broker") as broker:
        kafka = broker.kafka
        counted, dead = Results(kafka, f"{name}-counted"), Results(kafka, f"{name}-dead")
        try:
            produce(kafka, f"{name}-words", *["apple", "pear"] * 5, "bad")
            with running(name, kafka, tmp_path / "first", killed=True):
                counted.until({"text": "apple", "count": 5})
                counted.until({"text": "pear", "count": 5})
                dead.until({"text": "bad"})
            with running(name, kafka, tmp_path / "second"):
                produce(kafka, f"{name}-words", "apple")
                counted.until({"text": "apple", "count": 6})
        finally:
            counted.close()
            dead.close()
    assert sorted(value["count"] for value in counted.values) == sorted([*range(1, 6)] * 2 + [6])
