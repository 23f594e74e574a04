"""`consume --key` and `--message-id`."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from posthouse.client import Client
from posthouse.testing import ThreadBroker
from tests.cli.programs import inside, one_sentence


@pytest.fixture(scope="module")
def serving() -> Iterator[ThreadBroker]:
    with ThreadBroker() as running:
        yield running


def write(kafka: str, topic: str, *, is_indexed: bool) -> None:
    with Client(kafka) as client:
        settings = {"index.keys": "true"} if is_indexed else {}
        client.create_topic(topic, partitions=2, settings=settings)
        with client.producer(topic) as producer:
            for number in range(40):
                headers = [("KEYS", b"all w%d" % (number % 4)), ("UNIQ_KEY", b"id%d" % number)]
                key = b"k%d" % (number % 3)
                producer.send(b"%d\xff" % number, key, headers, partition=number % 2)


def parsed(serving: ThreadBroker, *arguments: str) -> list[dict[str, Any]]:
    done = inside("consume", *arguments, "--json", bootstrap=serving.kafka, admin=serving.address("admin"))
    assert (done.returncode, done.stderr) == (0, ""), done
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("is_indexed", [False, True])
def test_messages_are_found_with_all_their_bytes(serving: ThreadBroker, is_indexed: bool) -> None:
    topic = f"found-{is_indexed}"
    write(serving.kafka, topic, is_indexed=is_indexed)
    rows = parsed(serving, topic, "--key", "k1")
    assert [(row["partition"], row["key"]) for row in rows] == [(0, "k1")] * 6 + [(1, "k1")] * 7
    assert all(set(row["value"]) == {"base64"} for row in rows), "bytes that are no text stay as they are"
    assert len(parsed(serving, topic, "--key", "w3")) == 10
    assert len(parsed(serving, topic, "--key", "all")) == 40
    assert len(parsed(serving, topic, "--key", "all", "--max", "5")) == 5
    assert {row["partition"] for row in parsed(serving, topic, "--key", "all", "--partition", "1")} == {1}
    assert len(parsed(serving, topic, "--message-id", "id7")) == 1
    assert parsed(serving, topic, "--key", "none") == []
    assert len(parsed(serving, topic, "--key", "all", "--since", "1h")) == 40
    assert parsed(serving, topic, "--key", "all", "--until", "1h") == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["--key", "a", "--message-id", "b"],
        ["--until", "1h"],
        ["--key", "a", "--group", "g"],
        ["--key", "a", "-f"],
        ["--key", "a", "--offset", "1"],
        ["--key", "a", "--until", "soon"],
    ],
)
def test_what_does_not_go_together_is_refused(serving: ThreadBroker, arguments: list[str]) -> None:
    done = inside("consume", "orders", *arguments, bootstrap=serving.kafka, admin=serving.address("admin"))
    assert done.returncode == 2
    assert done.stderr


def test_an_unknown_topic_is_one_sentence(serving: ThreadBroker) -> None:
    done = inside("consume", "nowhere", "--key", "a", bootstrap=serving.kafka, admin=serving.address("admin"))
    assert "nowhere" in one_sentence(done, 1)
