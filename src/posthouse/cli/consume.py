"""`posthouse consume`: messages of a topic on stdout, one per line."""

from __future__ import annotations

import json as json_module
import sys
import time
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from posthouse.cli.durations import parse_moment
from posthouse.cli.options import Bootstrap, TopicName, open_client
from posthouse.cli.output import give_up_stdout, shown

if TYPE_CHECKING:
    from posthouse.client.positions import Start
    from posthouse.client.reading import Fetched, Message

_LINES = 1000
_FIELDS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")

FromBeginning = Annotated[
    bool, typer.Option("--from-beginning", metavar="", help="Start with the oldest message.")
]
Offset = Annotated[
    int | None,
    typer.Option(metavar="N", help="Start at this offset; -10 is ten before the end of each partition."),
]
Since = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Start at a time: a duration ago (90s, 15m, 1h30m, 2d) or a date."),
]
Partitions = Annotated[
    list[int] | None,
    typer.Option("--partition", min=0, metavar="P", help="Read this partition only; may be repeated."),
]
Follow = Annotated[bool, typer.Option("--follow", "-f", metavar="", help="Wait for new messages at the end.")]
Max = Annotated[int | None, typer.Option("--max", "-n", min=1, metavar="N", help="Stop after N messages.")]
Format = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="How a message is printed, with {key}, {value}, {partition}, {offset}, {timestamp}, {headers} "
        "and {topic}; \\t and \\n are understood.",
    ),
]
Json = Annotated[bool, typer.Option("--json", metavar="", help="Print one JSON object per message.")]


def register(app: typer.Typer) -> None:
    app.command(
        epilog="`posthouse consume orders --since 1h -f`\n\n"
        "`posthouse consume orders --from-beginning --format '{offset}\\t{key}\\t{value}'`"
    )(consume)


def consume(
    context: typer.Context,
    topic: TopicName,
    from_beginning: FromBeginning = False,
    offset: Offset = None,
    since: Since = None,
    partition: Partitions = None,
    follow: Follow = False,
    max: Max = None,
    format: Format = None,
    json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Print the messages of a topic.

    By default it waits for new messages until Ctrl-C. With a start (--from-beginning, --offset, --since) it
    prints up to the end of the log and stops; -f makes it wait there. Bytes that are not UTF-8 print as �.
    """
    if (json and format is not None) or from_beginning + (offset is not None) + (since is not None) > 1:
        raise typer.BadParameter(
            "they exclude each other; give one of them",
            ctx=context,
            param_hint="--json and --format" if json and format else "--from-beginning, --offset and --since",
        )
    line = _line_maker(topic, format, json)
    start = _start(from_beginning, offset, since)
    follow = follow or start is None
    from posthouse.client.positions import Start

    try:
        with open_client(context, bootstrap) as client:
            reading = client.reading(topic, start or Start.end(), partitions=partition, follow=follow)
            _print(reading, line, max)
    except BrokenPipeError:
        give_up_stdout()
    except KeyboardInterrupt:
        # The usual way to end; not an error.
        return


def _print(reading: Iterable[Fetched], line: Callable[[Message], str], limit: int | None) -> None:
    out = sys.stdout.buffer
    left = sys.maxsize if limit is None else limit
    for fetched in reading:
        messages = islice(fetched.messages(), left)
        # Many lines in one write, because each may be a system call.
        while lines := [line(message) for message in islice(messages, _LINES)]:
            out.write("".join(lines).encode(errors="replace"))
            left -= len(lines)
        out.flush()
        if not left:
            return


def _start(from_beginning: bool, offset: int | None, since: str | None) -> Start | None:
    from posthouse.client.positions import Start

    if from_beginning:
        return Start.beginning()
    if offset is not None:
        return Start.at(offset)
    if since is None:
        return None
    try:
        return Start.since(parse_moment(since, time.time_ns() // 1_000_000))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--since") from None


def _line_maker(topic: str, format: str | None, json: bool) -> Callable[[Message], str]:
    if json:
        return lambda message: json_module.dumps(_fields(topic, message), ensure_ascii=False) + "\n"
    if format is None:
        return lambda message: f"{_text(message.value)}\n"
    template = format.replace("\\t", "\t").replace("\\n", "\n") + "\n"
    try:
        template.format(**dict.fromkeys(_FIELDS, ""))
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        raise typer.BadParameter(
            f"{format!r} cannot be used ({error}); use {', '.join(f'{{{name}}}' for name in _FIELDS)}",
            param_hint="--format",
        ) from None
    return lambda message: template.format(**_texts(topic, message))


def _fields(topic: str, message: Message) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": message.timestamp,
        "key": shown(message.key),
        "value": shown(message.value),
        "headers": [[name, shown(value)] for name, value in message.headers],
    }


def _texts(topic: str, message: Message) -> dict[str, Any]:
    headers = ",".join(f"{name}={_text(value)}" for name, value in message.headers)
    texts = {**_fields(topic, message), "headers": headers}
    return {name: "null" if value is None else value for name, value in texts.items()}


def _text(data: bytes | None) -> str:
    """A tombstone has no value (None), which differs from an empty value."""
    return "null" if data is None else data.decode(errors="replace")
