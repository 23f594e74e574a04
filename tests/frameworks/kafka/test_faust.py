"""Faust: an agent with a table whose changelog is on the broker, killed and started again."""

import os
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from posthouse.testing import running_broker
from tests.frameworks.kafka.words import Results, application, produce

_PATIENCE_SECONDS = (15, 30, 60)
"""Of each start: a worker that the defect strikes waits for ever, and one on a busy machine needs long."""


def worker(name: str, kafka: str, data: Path, *, killed: bool = False) -> AbstractContextManager[None]:
    """`faust worker`, as its users start it."""
    environment = os.environ | {"FAUST_NAME": name, "FAUST_BROKER": kafka, "FAUST_DATA": str(data)}
    command = [sys.executable, "-m", "faust", "-A", "tests.frameworks.kafka.faust_app", "worker"]
    options = ["-l", "info", "--without-web"]
    return application([*command, *options], environment, data.with_suffix(".log"), killed=killed)


def create_topics(name: str, kafka: str) -> None:
    """Before the worker starts, because of a defect of aiokafka 0.14, with any broker: its producer begins
    with the metadata of all topics. From the first topic that it has to ask for by name it keeps only such
    topics. A record that waits to be sent to another one finds no leader any more, and is never sent.
    """
    topics = [NewTopic(f"{name}-{each}", 2) for each in ("words", "counted", "dead")]
    admin = AdminClient({"bootstrap.servers": kafka})
    for created in admin.create_topics(topics).values():
        created.result(30)


@pytest.mark.timeout(300)
def test_a_table_survives_a_kill(name: str, tmp_path: Path) -> None:
    """The second worker has the changelog only. Faust's exactly_once writes nothing with aiokafka 0.14,
    on Kafka 4.3.1 as well, so that a word may be counted again that was counted and not committed."""
    with running_broker(data=tmp_path / "broker") as broker:
        kafka = broker.kafka
        create_topics(name, kafka)
        counted, dead = Results(kafka, f"{name}-counted"), Results(kafka, f"{name}-dead")
        try:
            produce(kafka, f"{name}-words", *["apple", "pear"] * 5, "bad")
            with worker(name, kafka, tmp_path / "first", killed=True):
                counted.until({"text": "apple", "count": 5})
                counted.until({"text": "pear", "count": 5})
                dead.until({"text": "bad"})
            before = len(counted.values)
            produce(kafka, f"{name}-words", "apple")
            last = {"text": "apple", "count": 6}
            # The defect of aiokafka may strike a worker that is started again, too: the next one goes on.
            for number, seconds in enumerate(_PATIENCE_SECONDS):
                with worker(name, kafka, tmp_path / f"again-{number}"):
                    if counted.comes(last, seconds):
                        break
            assert last in counted.values, f"not after {number + 1} starts; see the workers' logs"
        finally:
            counted.close()
            dead.close()
    assert sorted(value["count"] for value in counted.values[:before]) == sorted([*range(1, 6)] * 2)
    assert all(value["count"] > 5 for value in counted.values[before:])
