"""Whatever is wrong, one sentence says what to do. In this process, because there are many cases."""

import errno
from dataclasses import fields

import pytest

from posthouse.cli import main, topics
from posthouse.cli.durations import parse_date, parse_moment
from posthouse.cli.sentences import explain
from posthouse.settings import Settings
from tests.cli.programs import posthouse


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["no-such"], "no such command 'no-such'; see 'posthouse --help'"),
        (["prodcue", "t"], "produce"),
        (["--no-such"], "no such option"),
        (["topic", "create"], "missing argument 'TOPIC'; see 'posthouse topic create --help'"),
        (["topic", "create", "t", "--partitions", "few"], "'--partitions'"),
        (["topic", "create", "t", "--partitions", "0"], "'--partitions'"),
        (["topic", "create", "t", "-c", "retention.ms"], "'retention.ms' is not KEY=VALUE"),
        (["topic", "alter", "t"], "nothing to change was given"),
        (["produce", "t", "--header", "x"], "'x' is not KEY=VALUE"),
        (["produce", "t", "--key-separator", ""], "it is empty; give a text such as ':'"),
        (["produce", "t", "--compression", "rar"], "'--compression'"),
        (["consume", "t", "--since", "soon"], "'soon' is neither a duration such as 1h30m nor a date"),
        (["consume", "t", "--from-beginning", "--offset", "1"], "they exclude each other"),
        (["consume", "t", "--json", "--format", "{key}"], "they exclude each other"),
        (["consume", "t", "--format", "{nope}"], "use {topic}, {partition}"),
        (["consume", "t", "--format", "{"], "use {topic}, {partition}"),
        (["consume", "t", "--max", "0"], "'--max'"),
        (["group", "describe"], "missing argument 'GROUP'; see 'posthouse group describe --help'"),
        (["group", "delete"], "missing argument 'GROUP"),
        (["group", "alter", "g"], "nothing to change was given"),
        (["group", "alter", "g", "-c", "x"], "'x' is not KEY=VALUE"),
        (["group", "reset-offsets", "g", "--to-latest"], "missing option '--topic'"),
        (["group", "reset-offsets", "g", "--topic", "t"], "give exactly one of them"),
        (
            ["group", "reset-offsets", "g", "--topic", "t", "--to-latest", "--to-offset", "0"],
            "give exactly one of them",
        ),
        (["group", "reset-offsets", "g", "--topic", "t:", "--to-latest"], "'t:' is no topic with partitions"),
        (["group", "reset-offsets", "g", "--topic", "t:1,x", "--to-latest"], "orders or orders:0,3"),
        (["group", "reset-offsets", "g", "--topic", ":1", "--to-latest"], "orders or orders:0,3"),
        (["group", "reset-offsets", "g", "--topic", "t", "--to-offset", "x"], "'--to-offset'"),
        (["group", "reset-offsets", "g", "--topic", "t", "--to-time", "1h"], "'1h' is no date; write"),
        (["group", "reset-offsets", "g", "--topic", "t", "--by-duration", "1"], "'1' is no duration; write"),
        (["--bootstrap", "nowhere:x", "topic", "list"], "write HOST:PORT"),
        (["log", "dump"], "missing argument 'SEGMENT'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_misuse_is_one_sentence_and_exit_code_2(
    arguments: list[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main.run(arguments)
    out, err = capsys.readouterr()
    assert (status, out) == (2, "")
    [line] = err.splitlines()
    assert line.startswith("posthouse: ") and part in line


@pytest.mark.parametrize(
    "arguments",
    [["topic", "list"], ["consume", "t"], ["topic", "delete", "t"], ["group", "list"]],
    ids=" ".join,
)
def test_without_a_broker(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--bootstrap", "127.0.0.1:1", *arguments]) == 1
    assert capsys.readouterr().err == (
        "posthouse: no broker answers at 127.0.0.1:1; start one with 'posthouse serve' or give --bootstrap\n"
    )


@pytest.mark.parametrize("flag", [["--debug"], []])
def test_debugging_shows_where(flag: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    if not flag:
        monkeypatch.setenv("POSTHOUSE_DEBUG", "1")
    with pytest.raises(Exception, match="no broker answers"):
        main.run([*flag, "--bootstrap", "127.0.0.1:1", "topic", "list"])


def test_a_mistake_of_ours_is_called_a_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*arguments: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr(topics, "open_client", broken)
    assert main.run(["topic", "list"]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert "this is a bug (KeyError: 'x'); run it again with --debug" in line


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EACCES, errno.ENOSPC, errno.EISDIR, errno.EIO])
def test_trouble_with_files_names_the_file(number: int) -> None:
    sentence, status = explain(OSError(number, "Reason", "/some/file"))
    assert status == 1 and "/some/file" in sentence and ";" in sentence


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["serve"],
        ["topic"],
        ["topic", "create"],
        ["topic", "alter"],
        ["produce"],
        ["consume"],
        ["group"],
        ["group", "list"],
        ["group", "describe"],
        ["group", "reset-offsets"],
        ["group", "delete"],
        ["log", "dump"],
        ["log", "verify"],
    ],
    ids=" ".join,
)
def test_help_has_an_example(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([*arguments, "--help"]) == 0
    out, err = capsys.readouterr()
    assert "Usage: posthouse" in out and err == ""
    if arguments not in (["topic"], ["group"]):
        assert out.count(f"posthouse {' '.join(arguments)}".strip()) > 1


def test_every_setting_is_an_option_with_its_own_words(capsys: pytest.CaptureFixture[str]) -> None:
    main.run(["serve", "--help"])
    words = capsys.readouterr().out.split()
    for setting in fields(Settings):
        assert "--" + setting.name.replace("_", "-") in words
        assert " ".join(setting.metadata["doc"].split()) in " ".join(words)


def test_version() -> None:
    done = posthouse("--version")
    assert (done.returncode, done.stdout.split()[0]) == (0, "posthouse")


@pytest.mark.parametrize(
    ("text", "ago"),
    [
        ("90s", 90_000),
        ("1h30m", 5_400_000),
        ("2d", 172_800_000),
        ("1w", 604_800_000),
        ("5ms", 5),
        (" 1m ", 60_000),
        ("1h 30m", 5_400_000),
        ("1 hour ago", 3_600_000),
        ("2 days", 172_800_000),
        ("1 hour 30 minutes ago", 5_400_000),
        ("1d ago", 86_400_000),
        ("PT1H", 3_600_000),
        ("P1DT1M30S", 86_490_000),
    ],
)
def test_durations(text: str, ago: int) -> None:
    assert parse_moment(text, 10**12) == 10**12 - ago


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-31T12:00:00+00:00", 1_769_860_800_000),
        ("2026-01-31T12:00:00Z", 1_769_860_800_000),
        ("1960-01-01", 0),
    ],
)
def test_dates(text: str, moment: int) -> None:
    assert parse_moment(text, 0) == parse_date(text) == moment


def test_nothing_is_older_than_the_epoch() -> None:
    assert parse_moment("3000w", 10**12) == 0


@pytest.mark.parametrize(
    "text", ["", "1", "h", "1y", "-1h", "1h30", "yesterday", "P", "PT", "ago", "1 hourss"]
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="neither a duration"):
        parse_moment(text, 0)
