"""Names that clients choose reach the operator's terminal without escape sequences."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from posthouse.cli import main, topics
from posthouse.cli.output import complain, one_line, print_json, say
from posthouse.client import Client, ClientError
from tests.cli.programs import Serving, inside, posthouse

ESCAPES = "\x1b]0;owned\x07\x9b2J\u202e\u2028 1"
SHOWN = r"\x1b]0;owned\x07\x9b2J\u202e\u2028 1"


@pytest.fixture
def hostile(serving: Serving, topic: str) -> Iterator[str]:
    """A name with escapes: of a queue, its binding, its message, a connection and a group."""
    name = f"{topic}-{ESCAPES}"
    with Client(serving.kafka) as client:
        client.create_topic(topic, partitions=1)
    assert inside("group", "reset", name, "--to", "0", "--topic", topic, bootstrap=serving.kafka).stdout
    host, port = serving.amqp.split(":")
    parameters = pika.ConnectionParameters(host, int(port), client_properties={"connection_name": name})
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.queue_declare(name)
    channel.queue_bind(name, "amq.direct", name)
    channel.confirm_delivery()
    channel.basic_publish("amq.direct", name, name.encode())
    yield name
    channel.queue_delete(name)
    connection.close()
    inside("group", "delete", name, bootstrap=serving.kafka)


def run(serving: Serving, *arguments: str) -> tuple[str, str]:
    done = inside(*arguments, bootstrap=serving.kafka, admin=serving.admin)
    return done.stdout, done.stderr


def is_visible(text: str) -> bool:
    return all(line.isprintable() for line in text.split("\n"))


COMMANDS = [
    ("queue", "list"),
    ("queue", "describe", "NAME"),
    ("queue", "peek", "NAME"),
    ("binding", "list"),
    ("connection", "list"),
    ("group", "list"),
    ("group", "describe", "NAME"),
    ("top", "--once"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_names_are_escaped(serving: Serving, hostile: str, command: tuple[str, ...]) -> None:
    arguments = [hostile if each == "NAME" else each for each in command]
    out, err = run(serving, *arguments)
    assert is_visible(out) and not err
    assert SHOWN in out


@pytest.mark.parametrize("command", COMMANDS[:-1], ids=" ".join)
def test_names_in_json_are_escaped_as_json_does_it(
    serving: Serving, hostile: str, command: tuple[str, ...]
) -> None:
    arguments = [hostile if each == "NAME" else each for each in command]
    out, err = run(serving, *arguments, "--json")
    assert is_visible(out) and not err
    assert any(hostile in text for text in texts(json.loads(out)))


def texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from texts(each)


def test_letters_in_json_stay_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"name": "Grüße, 世界 ✓", "odd": "\x7f\x9b\udc80\U000e0001"}
    print_json(value)
    out = capsys.readouterr().out
    assert "Grüße, 世界 ✓" in out and out.rstrip("\n").isprintable()
    assert json.loads(out) == value


def test_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"there is no {ESCAPES}")
    complain(f"there is no {ESCAPES}")
    assert capsys.readouterr().err == f"there is no {SHOWN}\nposthouse: there is no {SHOWN}\n"


def test_tracebacks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(*arguments: object) -> None:
        raise ClientError(f"there is no {ESCAPES}")

    monkeypatch.setattr(topics, "open_client", refused)
    monkeypatch.setattr(sys, "argv", ["posthouse", "--debug", "topic", "list"])
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    with pytest.raises(ClientError) as raised:
        main.main()
    sys.excepthook(raised.type, raised.value, raised.tb)
    lines = capsys.readouterr().err.split("\n")
    assert lines[0].startswith("Traceback") and lines[-2].endswith(f"there is no {SHOWN}")
    assert all(map(str.isprintable, lines))


def test_a_cell_is_cut_after_it_is_escaped() -> None:
    assert one_line(ESCAPES, 100) == SHOWN
    assert one_line(ESCAPES, 8) == SHOWN[:7] + "…"


def test_the_shell_is_offered_no_such_names(serving: Serving, hostile: str, topic: str) -> None:
    asked = {"_POSTHOUSE_COMPLETE": "complete_bash", "COMP_CWORD": "3"}
    for noun in ("queue", "group"):
        words = f"posthouse {noun} describe {topic}"
        done = posthouse(
            bootstrap=serving.kafka, POSTHOUSE_ADMIN_ADDRESS=serving.admin, COMP_WORDS=words, **asked
        )
        assert done.stdout.strip() == ""


def test_the_name_of_a_file_beside_its_progress(
    kafka: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "[bold]\x1b]0;owned\x07"
    file.write_text("hello\n")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    done = inside("produce", topic, "--file", file, bootstrap=kafka)
    assert done.returncode == 0, done
    assert r"[bold]\x1b]0;owned\x07" in done.stderr and "\x1b]" not in done.stderr
