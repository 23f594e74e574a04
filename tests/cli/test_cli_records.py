"""`consume` and `produce` beyond lines of text: several topics, groups, bytes, JSON, formats, tombstones."""

import base64
import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from posthouse.cli.escapes import unescaped
from posthouse.client import Client
from tests.cli.programs import PROGRAM, SECONDS, environment, inside, one_sentence, posthouse, start

NOT_UTF8 = b"\xff\x00\n"


def raw(kafka: str, *arguments: str) -> bytes:
    done = subprocess.run(
        [*PROGRAM, "consume", *arguments],
        capture_output=True,
        env=environment(POSTHOUSE_BOOTSTRAP=kafka),
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b""), done
    return done.stdout


def parsed(kafka: str, *arguments: str) -> list[dict[str, object]]:
    done = inside("consume", *arguments, "--json", bootstrap=kafka)
    assert (done.returncode, done.stderr) == (0, ""), done
    return [json.loads(line) for line in done.stdout.splitlines()]


def write(kafka: str, topic: str, *values: bytes | None, key: bytes | None = None) -> None:
    with Client(kafka) as client, client.producer(topic) as producer:
        for value in values:
            producer.send(value, key, [("h", b"1"), ("raw", NOT_UTF8)], partition=0)


def test_raw_bytes_have_nothing_added(kafka: str, topic: str) -> None:
    write(kafka, topic, NOT_UTF8, None, b"end")
    assert raw(kafka, topic, "--from-beginning", "--raw") == NOT_UTF8 + b"end"


def test_json_has_base64_where_bytes_are_no_text(kafka: str, topic: str) -> None:
    write(kafka, topic, NOT_UTF8, None, "ü".encode(), key=b"k")
    shown = {"base64": base64.b64encode(NOT_UTF8).decode()}
    found = parsed(kafka, topic, "--from-beginning")
    assert [each["value"] for each in found] == [shown, None, "ü"]
    assert all(each["headers"] == [["h", "1"], ["raw", shown]] for each in found)


def test_what_json_shows_json_can_write(kafka: str, topic: str) -> None:
    write(kafka, topic, NOT_UTF8, None, b"text", key=b"\xfe")
    lines = raw(kafka, topic, "--from-beginning", "--json")
    copied = posthouse("produce", f"{topic}-copy", "--json", stdin=lines, bootstrap=kafka)
    assert copied.stderr == f"3 messages written to '{topic}-copy'\n"
    with Client(kafka) as client:
        originals, copies = list(client.messages(topic)), list(client.messages(f"{topic}-copy"))
    assert originals == copies


def test_kcat_formats(kafka: str, topic: str) -> None:
    write(kafka, topic, NOT_UTF8, None, key=b"k")
    shown = raw(kafka, topic, "--from-beginning", "--format", r"%t/%p/%o\t%k=%s|%K %S %h 100%%\n")
    header = b"h=1,raw=" + NOT_UTF8
    assert shown == (
        b"%s/0/0\tk=%s|1 3 %s 100%%\n" % (topic.encode(), NOT_UTF8, header)
        + b"%s/0/1\tk=|1 -1 %s 100%%\n" % (topic.encode(), header)
    )
    sizes = raw(kafka, topic, "--from-beginning", "--format", "%R%s")
    assert sizes == b"\x00\x00\x00\x03" + NOT_UTF8 + b"\xff\xff\xff\xff"
    stamp = raw(kafka, topic, "--offset", "0", "-n", "1", "--format", "%T")
    assert int(stamp) > 1_600_000_000_000


def test_a_header_without_a_value_in_kcats_format(kafka: str, topic: str) -> None:
    with Client(kafka) as client, client.producer(topic) as producer:
        producer.send(b"x", headers=[("none", None), ("empty", b"")])
    assert raw(kafka, topic, "--from-beginning", "--format", "%h") == b"none=NULL,empty="


def test_json_may_be_written_around_kcat_placeholders(kafka: str, topic: str) -> None:
    write(kafka, topic, b"1")
    shown = raw(kafka, topic, "--from-beginning", "--format", '{"offset": %o, "v": "%s"}')
    assert json.loads(shown) == {"offset": 0, "v": "1"}


@pytest.fixture
def three(kafka: str, topic: str) -> str:
    for name in ("a", "b-x", "b-y"):
        with Client(kafka) as client:
            client.create_topic(f"{topic}.{name}", partitions=2)
        write(kafka, f"{topic}.{name}", name.encode())
    return topic


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (["{}.a", "{}.b-x"], ["a", "b-x"]),
        (["{}.b-*"], ["b-x", "b-y"]),
        (["{}.?"], ["a"]),
        (["{}.a", "{}.b-?", "{}.a"], ["a", "b-x", "b-y"]),
        (["^{}.b-(x|z)$"], ["b-x"]),
        (["^{}.b"], ["b-x", "b-y"]),
    ],
    ids=str,
)
def test_several_topics_and_patterns(kafka: str, three: str, wanted: list[str], expected: list[str]) -> None:
    topics = [text.format(three) for text in wanted]
    found = parsed(kafka, *topics, "--from-beginning")
    assert sorted(str(each["value"]) for each in found) == expected
    assert all(each["topic"] == f"{three}.{each['value']}" for each in found)


def test_several_topics_are_followed_at_once(kafka: str, three: str) -> None:
    found = parsed(kafka, f"{three}.*", "--from-beginning", "-f", "-n", "3")
    assert {each["value"] for each in found} == {"a", "b-x", "b-y"}


def test_patterns_that_match_nothing(kafka: str, topic: str) -> None:
    done = inside("consume", f"{topic}-*", "--from-beginning", bootstrap=kafka)
    assert "no topic has such a name; see 'posthouse topic list'" in one_sentence(done, 1)
    assert "it is no regular expression" in one_sentence(inside("consume", "^(", bootstrap=kafka), 2)


def test_a_group_goes_on_where_it_stopped(kafka: str, three: str) -> None:
    write(kafka, f"{three}.a", b"second", b"third")
    options = ("--group", f"{three}-group", "--from-beginning", "--json")
    values = []
    for count in ("2", "1"):
        done = inside("consume", f"{three}.a", *options, "-n", count, bootstrap=kafka)
        assert done.returncode == 0, done
        values.append([json.loads(line)["value"] for line in done.stdout.splitlines()])
    assert values == [["a", "second"], ["third"]]
    with Client(kafka) as client:
        info = client.group(f"{three}-group")
        assert (info.state, info.members) == ("Empty", [])
        [first, *_] = client.group_offsets(info)
        assert (first.partition, first.committed, first.lag) == (0, 3, 0)


def test_a_member_that_is_interrupted_commits_and_leaves(kafka: str, three: str) -> None:
    group = f"{three}-interrupted"
    member = start("consume", f"{three}.a", "--group", group, "--from-beginning", kafka=kafka)
    assert member.stdout is not None and member.stdout.readline() == b"a\n"
    with Client(kafka) as client:
        deadline = time.monotonic() + SECONDS
        while not any(each.committed == 1 for each in client.group_offsets(client.group(group))):
            assert time.monotonic() < deadline
        member.send_signal(signal.SIGINT)
        assert member.communicate(timeout=SECONDS) == (b"", b"")
        assert member.returncode == 0
        assert client.group(group).members == []


def test_a_group_takes_patterns(kafka: str, three: str) -> None:
    done = inside(
        "consume", f"{three}.b-*", "--group", f"{three}-all", "--from-beginning", "-n", "2", bootstrap=kafka
    )
    assert sorted(done.stdout.splitlines()) == ["b-x", "b-y"]


def test_two_members_share_the_partitions(kafka: str, topic: str) -> None:
    with Client(kafka) as client:
        client.create_topic(topic, partitions=2)
        members = [start("consume", topic, "--group", f"{topic}-g", "-n", "1", kafka=kafka) for _ in "12"]
        deadline = time.monotonic() + SECONDS
        assigned: list[int] = []
        while assigned != [1, 1]:
            assert time.monotonic() < deadline and all(member.poll() is None for member in members)
            names = client.group_names()
            found = client.group(f"{topic}-g").members if f"{topic}-g" in names else ()
            assigned = [len(each.partitions) for each in found]
        # A member begins at the end of whenever it gets its partition, so it is sent more until it has one.
        with client.producer(topic) as producer:
            while any(member.poll() is None for member in members):
                for partition in (0, 1):
                    producer.send(b"%d" % partition, partition=partition)
                producer.flush()
    outputs = [member.communicate(timeout=SECONDS) for member in members]
    assert sorted(outputs) == [(b"0\n", b""), (b"1\n", b"")]


def test_what_does_not_go_with_a_group(kafka: str, topic: str) -> None:
    done = inside("consume", topic, "--group", "g", "--since", "1h", bootstrap=kafka)
    assert "move it with 'posthouse group reset-offsets'" in one_sentence(done, 2)
    missing = inside("consume", topic, "--group", "g", bootstrap=kafka)
    assert "there is no topic" in one_sentence(missing, 1)


def test_tabs_tombstones_headers_and_a_partition(kafka: str, topic: str) -> None:
    with Client(kafka) as client:
        client.create_topic(topic, partitions=3)
    options = ("--key-separator", r"\t", "--tombstones", "-H", "a=1", "--partition", "2")
    done = posthouse("produce", topic, *options, stdin="k\tv\nk\t\n", bootstrap=kafka)
    assert done.returncode == 0, done
    found = parsed(kafka, topic, "--from-beginning")
    assert [(each["key"], each["value"], each["partition"]) for each in found] == [
        ("k", "v", 2),
        ("k", None, 2),
    ]
    assert found[0]["headers"] == [["a", "1"]]


def test_json_lines(kafka: str, topic: str, tmp_path: Path) -> None:
    with Client(kafka) as client:
        client.create_topic(topic, partitions=2)
    file = tmp_path / "records.jsonl"
    file.write_text(
        '{"key": "k", "value": "v", "headers": {"a": "1"}, "partition": 1, "timestamp": 1700000000000}\n'
        '{"value": {"total": 3}, "partition": 1}\n'
        '{"key": "k", "value": null, "headers": [["a", null]], "partition": 1}\n'
    )
    done = inside("produce", topic, "--json", "--file", file, "-H", "all=x", bootstrap=kafka)
    assert done.returncode == 0, done
    found = parsed(kafka, topic, "--from-beginning")
    assert [each["value"] for each in found] == ["v", '{"total":3}', None]
    assert found[0]["timestamp"] == 1_700_000_000_000
    assert [each["headers"] for each in found] == [
        [["a", "1"], ["all", "x"]],
        [["all", "x"]],
        [["a", None], ["all", "x"]],
    ]


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("hello", "it is not JSON"),
        ("[1]", "it is no JSON object"),
        ('{"key": "k"}', "it has no 'value' (null would be a tombstone)"),
        ('{"value": "v", "kay": 1}', "there is no field 'kay', only headers, key, partition"),
        ('{"value": "v", "headers": 1}', "neither an object nor a list of pairs"),
        ('{"value": "v", "headers": [["a"]]}', "['a'] is no header; write [name, value]"),
        ('{"value": "v", "partition": "x"}', "its partition 'x' is no number"),
        ('{"value": {"base64": "?"}}', "'?' is not base64"),
    ],
)
def test_lines_that_are_no_records(kafka: str, topic: str, line: str, part: str, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text(line + "\n")
    done = inside("produce", topic, "--json", "--file", file, bootstrap=kafka)
    assert done.returncode == 2
    count, sentence = done.stderr.splitlines()
    assert count.startswith("0 messages") and "line 1 is no record: " in sentence and part in sentence


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["consume", "t", "--raw", "--json"], "they exclude each other"),
        (["consume", "t", "--format", "%q"], "'%q' stands for nothing; use %t %p"),
        (["produce", "t", "--json", "--tombstones"], "JSON says itself"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_misuse(arguments: list[str], part: str) -> None:
    assert part in one_sentence(inside(*arguments), 2)


def test_escapes() -> None:
    assert unescaped(r"a\tb\nc\\t\x41\q\0") == b"a\tb\nc\\tA\\q\0"
