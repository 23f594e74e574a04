"""The topic commands."""

import json
from typing import Any

from posthouse.client import Client
from tests.cli.programs import inside, one_sentence, posthouse


def output(*arguments: str, kafka: str) -> str:
    done = inside(*arguments, bootstrap=kafka)
    assert done.returncode == 0, done
    return done.stdout


def parsed(*arguments: str, kafka: str) -> Any:
    return json.loads(output(*arguments, "--json", kafka=kafka))


def test_a_topic_lives_and_dies(kafka: str, topic: str) -> None:
    created = posthouse(
        "topic", "create", topic, "--partitions", "2", "-c", "retention.ms=5000", bootstrap=kafka
    )
    assert (created.returncode, created.stdout) == (0, "")
    assert created.stderr == f"created topic '{topic}' with 2 partitions\n"
    assert {"topic": topic, "partitions": 2, "records": 0} in parsed("topic", "list", kafka=kafka)
    output(
        "topic",
        "alter",
        topic,
        "--partitions",
        "3",
        "--unset",
        "retention.ms",
        "-c",
        "segment.ms=9",
        kafka=kafka,
    )
    described = parsed("topic", "describe", topic, kafka=kafka)
    assert described["partitions"] == [{"partition": index, "start": 0, "end": 0} for index in range(3)]
    own = {name: each["value"] for name, each in described["settings"].items() if each["set_by"] == "topic"}
    assert own == {"segment.ms": "9"}
    assert parsed("topic", "delete", topic, kafka=kafka) == {"topic": topic, "deleted": True}
    assert topic not in [each["topic"] for each in parsed("topic", "list", kafka=kafka)]


def test_tables_in_a_pipe_are_whole_lines(kafka: str, topic: str) -> None:
    long = f"{topic}-" + "x" * 200
    inside("topic", "create", long, "--partitions", "1", bootstrap=kafka)
    posthouse("produce", long, stdin="a\nb\n", bootstrap=kafka)
    header, *rows = output("topic", "list", kafka=kafka).splitlines()
    assert header.split() == ["topic", "partitions", "records"]
    assert [long, "1", "2"] in [row.split() for row in rows]
    described = output("topic", "describe", long, kafka=kafka)
    assert ["0", "0", "2", "2"] in [line.split() for line in described.splitlines()]
    assert (
        "When a write is acknowledged: 'fsync' after it is on disk, 'os' when it is in the page cache."
        in described
    )


def test_settings_without_effect_are_shown_on_demand_or_if_set(kafka: str, topic: str) -> None:
    inside("topic", "create", topic, "-c", "flush.ms=1000", bootstrap=kafka)
    assert parsed("topic", "describe", topic, kafka=kafka)["settings"]["flush.ms"]["set_by"] == "topic"
    assert "preallocate" not in parsed("topic", "describe", topic, kafka=kafka)["settings"]
    assert "preallocate" in parsed("topic", "describe", topic, "--all", kafka=kafka)["settings"]


def test_the_address_may_stand_behind_the_command_too(kafka: str, topic: str) -> None:
    nobody = "127.0.0.1:1"
    assert inside("topic", "create", topic, "--bootstrap", kafka, bootstrap=nobody).returncode == 0
    assert posthouse("--bootstrap", kafka, "topic", "describe", topic, bootstrap=nobody).returncode == 0


def test_the_shell_completes_topic_names(kafka: str, topic: str) -> None:
    inside("topic", "create", f"{topic}-complete", bootstrap=kafka)
    words = f"posthouse consume {topic}-co"
    asked = {"_POSTHOUSE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "2"}
    assert posthouse(bootstrap=kafka, **asked).stdout.split() == [f"{topic}-complete"]
    assert posthouse(bootstrap="127.0.0.1:1", **asked).stdout.split() == [], "no broker, no names"


def test_the_shell_completes_commands() -> None:
    asked = {"_POSTHOUSE_COMPLETE": "complete_bash", "COMP_WORDS": "posthouse topic d", "COMP_CWORD": "2"}
    assert posthouse(**asked).stdout.split() == ["describe", "delete"]


def test_refusals(kafka: str, topic: str) -> None:
    inside("topic", "create", topic, bootstrap=kafka)

    def refused(*arguments: str) -> str:
        return one_sentence(inside("topic", *arguments, bootstrap=kafka), 1)

    assert refused("create", topic).startswith(f"the topic '{topic}' exists already; choose another name")
    assert refused("describe", "nope").startswith("there is no topic 'nope'; create it with")
    for change in (["delete", "nope"], ["alter", "nope", "--partitions", "9"]):
        assert refused(*change) == "there is no topic 'nope'; see 'posthouse topic list' for those there are"
    assert refused("alter", topic, "-c", "retention.sm=1") == (
        "unknown topic setting 'retention.sm'; did you mean 'retention.ms'?"
    )
    assert "unknown topic setting 'no.such'" in refused("alter", topic, "-c", "no.such=1")
    assert "must be between" in refused("create", f"{topic}-x", "-c", "retention.ms=-9")
    assert "is not an increase" in refused("alter", topic, "--partitions", "1")


def test_trimming(kafka: str, topic: str) -> None:
    with Client(kafka) as client:
        client.create_topic(topic, partitions=2)
        with client.producer(topic) as producer:
            for number in range(10):
                producer.send(b"x", partition=number % 2, timestamp=1_700_000_000_000 + number)
    plan = inside("topic", "trim", topic, "--before-offset", "-2", "--dry-run", "--json", bootstrap=kafka)
    assert [each["new_start"] for each in json.loads(plan.stdout)["partitions"]] == [3, 3]
    first = inside("topic", "trim", topic, "--partition", "1", "--before-offset", "2", bootstrap=kafka)
    assert [line.split() for line in first.stdout.splitlines()][1:] == [["1", "0", "2", "2"]]
    with Client(kafka) as client:
        assert [tuple(each) for each in client.bounds([client.topic(topic)]).values()] == [(0, 5), (2, 5)]
    assert inside("topic", "trim", topic, "--before", "2001-01-01", bootstrap=kafka).returncode == 0
    assert inside("topic", "trim", topic, "--everything", bootstrap=kafka).returncode == 0
    with Client(kafka) as client:
        assert [tuple(each) for each in client.bounds([client.topic(topic)]).values()] == [(5, 5), (5, 5)]
    for arguments, part in (
        ((), "give exactly one of them"),
        (("--everything", "--before", "1d"), "give exactly one of them"),
        (("--before", "soon"), "neither a duration"),
    ):
        assert part in one_sentence(inside("topic", "trim", topic, *arguments, bootstrap=kafka), 2)
