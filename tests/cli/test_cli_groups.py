"""The group commands, with a real consumer in the group."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from posthouse.client import Client
from posthouse.testing import running_broker
from tests.cli.programs import inside, one_sentence, posthouse

HOUR = 3_600_000
OLD = 1_700_000_000_000


@pytest.fixture
def filled(kafka: str, topic: str) -> str:
    """Two partitions: three old records and one of now in the first, one of now in the second."""
    now = time.time_ns() // 1_000_000
    with Client(kafka) as client:
        client.create_topic(topic, partitions=2)
        with client.producer(topic) as producer:
            for hour in range(3):
                producer.send(b"old", partition=0, timestamp=OLD + hour * HOUR)
            for partition in (0, 1):
                producer.send(b"new", partition=partition, timestamp=now)
    return topic


@pytest.fixture
def member(kafka: str, filled: str) -> Iterator[Consumer]:
    """It is in the group of the topic's name, has all partitions and has committed one of them."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": filled,
            "client.id": "reader",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "log_level": 0,
        }
    )
    consumer.subscribe([filled])
    deadline = time.monotonic() + 30
    while len(consumer.assignment()) != 2:
        assert time.monotonic() < deadline
        consumer.poll(0.02)
    consumer.commit(offsets=[TopicPartition(filled, 0, 1)], asynchronous=False)
    yield consumer
    consumer.close()


def output(*arguments: str, kafka: str) -> str:
    done = inside("group", *arguments, bootstrap=kafka)
    assert done.returncode == 0, done
    return done.stdout


def parsed(*arguments: str, kafka: str) -> Any:
    return json.loads(output(*arguments, "--json", kafka=kafka))


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def committed(group: str, kafka: str) -> list[int]:
    return [each["committed"] for each in parsed("describe", group, kafka=kafka)["offsets"]]


def test_a_group_lives_and_dies(kafka: str, filled: str, member: Consumer) -> None:
    listed = {"group": filled, "protocol": "classic"}
    stable = {**listed, "state": "Stable", "assignor": "range", "members": 1}
    assert stable in parsed("list", kafka=kafka)
    assert [filled, "Stable", "classic", "range", "1"] in rows(output("list", kafka=kafka))
    refused = inside("group", "delete", filled, bootstrap=kafka)
    assert one_sentence(refused, 1).endswith("has active members; stop its consumers and try again")
    member.close()
    assert {**listed, "state": "Empty", "assignor": "", "members": 0} in parsed("list", kafka=kafka)
    deleted = posthouse("group", "delete", filled, bootstrap=kafka)
    assert (deleted.returncode, deleted.stdout) == (0, "")
    assert deleted.stderr == f"deleted group '{filled}'\n"
    assert filled not in [each["group"] for each in parsed("list", kafka=kafka)]


def test_members_and_lag(kafka: str, filled: str, member: Consumer) -> None:
    described = parsed("describe", filled, kafka=kafka)
    [only] = described.pop("members")
    name = only.pop("member")
    assert only == {
        "instance": None,
        "client": "reader",
        "host": "127.0.0.1",
        "partitions": [{"topic": filled, "partition": 0}, {"topic": filled, "partition": 1}],
    }
    common = {"topic": filled, "member": name}
    assert described.pop("offsets") == [
        {"partition": 0, "committed": 1, "end": 4, "lag": 3, **common},
        {"partition": 1, "committed": None, "end": 1, "lag": None, **common},
    ]
    assert described == {"group": filled, "state": "Stable", "protocol": "classic", "assignor": "range"}
    assert rows(output("describe", filled, kafka=kafka)) == [
        ["group", filled, "state", "Stable", "protocol", "classic", "assignor", "range"],
        [],
        ["member", "client", "host", "partitions"],
        [name, "reader", "127.0.0.1", f"{filled}:0,1"],
        [],
        ["topic", "partition", "committed", "end", "lag", "member"],
        [filled, "0", "1", "4", "3", name],
        [filled, "1", "-", "1", "-", name],
    ]
    member.close()
    assert rows(output("describe", filled, kafka=kafka))[2:] == [
        ["topic", "partition", "committed", "end", "lag", "member"],
        [filled, "0", "1", "4", "3", "-"],
    ]


def test_no_reset_while_members_are_active(kafka: str, filled: str, member: Consumer) -> None:
    reset = ("group", "reset-offsets", filled, "--topic", filled, "--to-latest")
    for arguments in (reset, (*reset, "--dry-run")):
        sentence = one_sentence(inside(*arguments, bootstrap=kafka), 1)
        assert sentence == f"group '{filled}' has an active member; stop its consumers and try again"
    member.close()
    output(*reset[1:], kafka=kafka)
    assert committed(filled, kafka) == [4, 1]


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (["--to-earliest"], [0, 0]),
        (["--to-latest"], [4, 1]),
        (["--to-offset", "3"], [3, 1]),
        (["--to-offset", "-1"], [3, 0]),
        (["--to-time", "2023-11-14T23:13:20Z"], [1, 0]),
        (["--to-time", "2023-11-15T01:13:21+01:00"], [3, 0]),
        (["--to-time", "1960-01-01"], [0, 0]),
        (["--by-duration", "1h"], [3, 0]),
        (["--by-duration", "1 hour ago"], [3, 0]),
        (["--by-duration", "PT1H"], [3, 0]),
        (["--by-duration", "0s"], [4, 1]),
    ],
    ids=lambda value: " ".join(map(str, value)),
)
def test_reset(kafka: str, filled: str, place: list[str], expected: list[int]) -> None:
    reset = ("reset-offsets", filled, "--topic", filled, *place)
    changes = [
        {"topic": filled, "partition": index, "old": None, "new": offset}
        for index, offset in enumerate(expected)
    ]
    wanted = {"group": filled, "offsets": changes}
    assert parsed(*reset, "--dry-run", kafka=kafka) == {**wanted, "dry_run": True}
    unchanged = inside("group", "describe", filled, bootstrap=kafka)
    assert one_sentence(unchanged, 1).startswith(f"there is no group '{filled}'")
    assert parsed(*reset, kafka=kafka) == {**wanted, "dry_run": False}
    assert committed(filled, kafka) == expected


def test_a_reset_says_what_it_changes(kafka: str, filled: str) -> None:
    output("reset-offsets", filled, "--topic", f"{filled}:0", "--to-offset", "1", kafka=kafka)
    reset = ("group", "reset-offsets", filled, "--topic", filled, "--to-latest")
    table = [["topic", "partition", "old", "new"], [filled, "0", "1", "4"], [filled, "1", "-", "1"]]
    tried = inside(*reset, "--dry-run", bootstrap=kafka)
    assert (tried.returncode, rows(tried.stdout)) == (0, table)
    assert tried.stderr == "nothing was changed; leave out --dry-run to do it\n"
    assert committed(filled, kafka) == [1]
    done = posthouse(*reset, bootstrap=kafka)
    assert (done.returncode, rows(done.stdout)) == (0, table)
    assert done.stderr == f"group '{filled}' continues from these offsets\n"
    assert committed(filled, kafka) == [4, 1]


def test_chosen_partitions_of_several_topics(kafka: str, filled: str) -> None:
    other = f"{filled}-other"
    inside("topic", "create", other, "--partitions", "4", bootstrap=kafka)
    topics = (f"{filled}:1", f"{other}:3", f"{other}:0,1")
    arguments = [word for topic in topics for word in ("--topic", topic)]
    found = parsed("reset-offsets", filled, *arguments, "--to-earliest", kafka=kafka)["offsets"]
    places = [(each["topic"], each["partition"]) for each in found]
    assert places == [(filled, 1), (other, 0), (other, 1), (other, 3)]
    arguments = ["--topic", f"{other}:1", "--topic", other]
    found = parsed("reset-offsets", filled, *arguments, "--to-earliest", kafka=kafka)["offsets"]
    assert [each["partition"] for each in found] == [0, 1, 2, 3], "the whole topic includes its partitions"


def test_deleting_several(kafka: str, filled: str) -> None:
    names = (f"{filled}-a", f"{filled}-b")
    for name in names:
        output("reset-offsets", name, "--topic", filled, "--to-latest", kafka=kafka)
    done = inside("group", "delete", names[0], "nope", names[1], "--json", bootstrap=kafka)
    assert done.returncode == 1
    assert json.loads(done.stdout) == [
        {"group": names[0], "deleted": True},
        {"group": "nope", "deleted": False},
        {"group": names[1], "deleted": True},
    ]
    [line] = done.stderr.splitlines()
    assert line.startswith("posthouse: there is no group 'nope'; see 'posthouse group list'")


def test_the_shell_completes_group_names(kafka: str, filled: str) -> None:
    output("reset-offsets", f"{filled}-complete", "--topic", filled, "--to-latest", kafka=kafka)

    def completed(words: str, bootstrap: str = kafka) -> list[str]:
        count = str(len(words.split()) - 1)
        asked = {"_POSTHOUSE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": count}
        return posthouse(bootstrap=bootstrap, **asked).stdout.split()

    assert completed(f"posthouse group describe {filled}-co") == [f"{filled}-complete"]
    assert completed(f"posthouse group delete x {filled}-co") == [f"{filled}-complete"]
    assert completed(f"posthouse group describe {filled}-co", "127.0.0.1:1") == [], "no broker, no names"


def test_where_there_is_nothing_to_show() -> None:
    with running_broker() as broker:
        kafka = broker.kafka
        listed = inside("group", "list", bootstrap=kafka)
        assert (listed.returncode, listed.stdout) == (0, "")
        assert listed.stderr.startswith("there are no groups yet; one begins when a consumer")
        assert parsed("list", kafka=kafka) == []


def test_a_member_that_has_read_nothing_yet(kafka: str, topic: str) -> None:
    consumer = Consumer(
        {"bootstrap.servers": kafka, "group.id": topic, "group.protocol": "consumer", "log_level": 0}
    )
    consumer.subscribe([f"{topic}-missing"])
    deadline = time.monotonic() + 30
    while [topic, "Stable"] not in [row[:2] for row in rows(output("list", kafka=kafka))]:
        assert time.monotonic() < deadline
        consumer.poll(0.05)
    described = inside("group", "describe", topic, bootstrap=kafka)
    assert rows(described.stdout)[3][1:] == ["rdkafka", "127.0.0.1", "-"]
    assert described.stderr == f"group '{topic}' has committed no offsets\n"
    consumer.close()


def test_refusals(kafka: str, filled: str) -> None:
    def refused(*arguments: str, status: int = 1) -> str:
        return one_sentence(inside("group", *arguments, bootstrap=kafka), status)

    reset = ("reset-offsets", filled, "--to-earliest", "--topic")
    assert refused("describe", "nope").startswith("there is no group 'nope'; see 'posthouse group list'")
    assert refused(*reset, "nope").startswith("there is no topic 'nope'; create it with")
    assert "has no partition 2; choose one from 0 to 1" in refused(*reset, f"{filled}:2")
    behind = refused("reset-offsets", filled, "--topic", filled, "--to-offset", "5")
    assert behind == f"offset 5 lies behind the end of topic '{filled}' at 4; choose a lower one"
    assert refused("reset-offsets", "", "--topic", filled, "--to-latest", status=2) == (
        "the name of the group is empty; give one"
    )


def test_settings_of_a_group(kafka: str, filled: str) -> None:
    limit = "share.delivery.count.limit"

    def stored() -> str:
        with Client(kafka) as client:
            return {each.name: each.value for each in client.group_settings(filled)}[limit]

    output("alter", filled, "-c", f"{limit}=3", kafka=kafka)
    assert stored() == "3"
    wrong = ("group", "alter", filled, "-c", f"{limit}=0")
    assert "must be between 1 and" in one_sentence(inside(*wrong, bootstrap=kafka), 1)
    assert parsed("alter", filled, "--unset", limit, kafka=kafka) == {"group": filled, "altered": True}
    assert stored() == "5"
