"""Messages in through stdin or a file, and out again through stdout."""

import json
import os
import pty
import signal
import subprocess
import time
from pathlib import Path

import pytest

from posthouse.client import Client
from tests.cli.programs import PROGRAM, SECONDS, environment, inside, one_sentence, posthouse, start


def consume(kafka: str, topic: str, *arguments: str) -> list[str]:
    done = inside("consume", topic, *arguments, bootstrap=kafka)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout.splitlines()


def test_lines_in_lines_out(kafka: str, topic: str) -> None:
    lines = "hello\n\nünïcode ✓\nlast without an end"
    done = posthouse("produce", topic, "--partition", "0", stdin=lines, bootstrap=kafka)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"4 messages written to '{topic}'\n"
    assert consume(kafka, topic, "--from-beginning") == lines.split("\n")


def test_nothing_in_nothing_out(kafka: str, topic: str) -> None:
    done = posthouse("produce", topic, stdin="", bootstrap=kafka)
    assert (done.returncode, done.stderr) == (0, f"0 messages written to '{topic}'\n")
    assert consume(kafka, topic, "--from-beginning") == []


def test_keys_headers_and_compression(kafka: str, topic: str) -> None:
    options = ("--key-separator", "=>", "--header", "a=1", "--header", "b=x=y", "--compression", "zstd")
    done = posthouse("produce", topic, *options, stdin="k=>v\nl=>w=>x\n=>\n", bootstrap=kafka)
    assert done.returncode == 0, done
    found = [json.loads(line) for line in consume(kafka, topic, "--from-beginning", "--json")]
    assert sorted((each["key"], each["value"]) for each in found) == [("", ""), ("k", "v"), ("l", "w=>x")]
    assert all(each["headers"] == [["a", "1"], ["b", "x=y"]] for each in found)
    assert {each["topic"] for each in found} == {topic}
    assert all(abs(each["timestamp"] / 1000 - time.time()) < 600 for each in found)


def test_a_line_without_its_separator_is_named_and_the_lines_before_it_are_not_written(
    kafka: str, topic: str
) -> None:
    done = posthouse("produce", topic, "--key-separator", ":", stdin="a:1\nb\n", bootstrap=kafka)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"0 messages written to '{topic}'",
        "posthouse: line 2 has no ':' between key and value; add it, or leave out --key-separator",
    ]


def test_bytes_that_are_no_text_do_not_stop_it(kafka: str, topic: str) -> None:
    posthouse("produce", topic, stdin=b"\xff\xfe\n", bootstrap=kafka)
    assert consume(kafka, topic, "--from-beginning") == ["��"]


@pytest.fixture
def numbered(kafka: str, topic: str) -> str:
    """A topic with one partition and the messages 0 to 9, one hour apart, the last one half an hour ago."""
    now = time.time_ns() // 1_000_000
    with Client(kafka) as client:
        client.create_topic(topic, partitions=1)
        with client.producer(topic) as producer:
            for number in range(10):
                hours = 9.5 - number
                producer.send(b"%d" % number, b"key", timestamp=now - int(hours * 3_600_000))
    return topic


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--from-beginning"], range(10)),
        (["--from-beginning", "--max", "3"], range(3)),
        (["--offset", "7"], range(7, 10)),
        (["--offset", "-2"], range(8, 10)),
        (["--since", "1h"], range(9, 10)),
        (["--since", "2h45m"], range(7, 10)),
        (["--since", "2001-01-31"], range(10)),
        (["--from-beginning", "--partition", "0", "-n", "1"], range(1)),
        (["--offset", "9", "-f", "-n", "1"], range(9, 10)),
    ],
    ids=str,
)
def test_places_to_begin(kafka: str, numbered: str, arguments: list[str], expected: range) -> None:
    assert consume(kafka, numbered, *arguments) == [str(number) for number in expected]


def test_a_format(kafka: str, numbered: str) -> None:
    template = r"{partition}:{offset}\t{key}={value}"
    assert consume(kafka, numbered, "--offset", "9", "--format", template) == ["0:9\tkey=9"]


def test_without_a_place_to_begin_it_waits_for_new_messages(kafka: str, numbered: str) -> None:
    consumer = start("consume", numbered, "--max", "2", kafka=kafka)
    assert consumer.stdout is not None
    with Client(kafka) as client, client.producer(numbered) as producer:
        # It begins at the end of whenever it gets there, so it is sent more until it has one.
        while consumer.poll() is None:
            producer.send(b"new")
            producer.flush()
    assert consumer.communicate(timeout=SECONDS) == (b"new\nnew\n", b"")
    assert consumer.returncode == 0


def test_following_prints_at_once_and_ctrl_c_ends_it_quietly(kafka: str, numbered: str) -> None:
    consumer = start("consume", numbered, "--offset", "8", "-f", kafka=kafka)
    assert consumer.stdout is not None
    assert [consumer.stdout.readline(), consumer.stdout.readline()] == [b"8\n", b"9\n"]
    posthouse("produce", numbered, stdin="ten\n", bootstrap=kafka)
    assert consumer.stdout.readline() == b"ten\n"
    consumer.send_signal(signal.SIGINT)
    assert consumer.communicate(timeout=SECONDS) == (b"", b"")
    assert consumer.returncode == 0


def test_a_reader_that_leaves_ends_it_quietly(kafka: str, numbered: str) -> None:
    with Client(kafka) as client, client.producer(numbered) as producer:
        for _ in range(300):
            producer.send(b"x" * 1000)
    consumer = start("consume", numbered, "--from-beginning", "-f", kafka=kafka)
    assert consumer.stdout is not None and consumer.stderr is not None
    assert consumer.stdout.readline() == b"0\n"
    consumer.stdout.close()
    assert consumer.stderr.read() == b""
    assert consumer.wait(SECONDS) == 0
    consumer.stderr.close()


def test_lines_are_sent_as_they_come(kafka: str, topic: str) -> None:
    """A pipe that stays open must not keep back what came through it."""
    with Client(kafka) as client:
        client.create_topic(topic, partitions=1)
        producer = start("produce", topic, kafka=kafka)
        assert producer.stdin is not None
        messages = client.messages(topic, follow=True)
        for line in (b"one", b"two"):
            producer.stdin.write(line + b"\n")
            producer.stdin.flush()
            assert next(messages).value == line
        assert producer.communicate(timeout=SECONDS)[1] == f"2 messages written to '{topic}'\n".encode()


def test_a_file_with_a_progress_bar(kafka: str, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "numbers.txt"
    file.write_text("".join(f"{number}\n" for number in range(50_000)))
    terminal, end = pty.openpty()
    arguments = [*PROGRAM, "produce", topic, "--file", str(file)]
    more = {"POSTHOUSE_BOOTSTRAP": kafka, "TERM": "xterm"}
    producer = subprocess.Popen(arguments, stderr=end, env=environment(**more))
    os.close(end)
    shown = b""
    while chunk := _read_terminal(terminal):
        shown += chunk
    os.close(terminal)
    assert producer.wait(SECONDS) == 0
    text = shown.decode()
    assert "numbers.txt" in text and "288.9" in text and "/s" in text
    assert f"50,000 messages written to '{topic}'" in text
    assert len(consume(kafka, topic, "--from-beginning")) == 50_000


def test_a_file_without_a_terminal_has_no_progress_bar(kafka: str, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text("a\nb")
    done = posthouse("produce", topic, "--file", file, bootstrap=kafka)
    assert done.stderr == f"2 messages written to '{topic}'\n"


def test_refusals(kafka: str, topic: str) -> None:
    assert "there is no topic" in one_sentence(inside("consume", topic, bootstrap=kafka), 1)
    posthouse("topic", "create", topic, "--partitions", "1", bootstrap=kafka)
    for arguments, part in (
        (["--offset", "5"], "offset 5 lies behind the end"),
        (["--partition", "7", "--from-beginning"], "has no partition 7; choose one from 0 to 0"),
    ):
        assert part in one_sentence(inside("consume", topic, *arguments, bootstrap=kafka), 1)
    assert "no broker answers" in one_sentence(posthouse("produce", topic, bootstrap="127.0.0.1:1"), 1)
    missing = posthouse("produce", topic, "--file", "/no/such/file", bootstrap=kafka)
    assert one_sentence(missing, 1) == "there is no /no/such/file; check the path"


def _read_terminal(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # how Linux says that the other end is closed
        return b""
