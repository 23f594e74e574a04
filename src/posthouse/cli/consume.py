"""`posthouse consume`: messages of topics on stdout."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from posthouse.cli.durations import parse_moment
from posthouse.cli.options import Admin, Bootstrap, complete_group, complete_topic, open_admin, open_client
from posthouse.cli.output import give_up_stdout

if TYPE_CHECKING:
    from posthouse.cli.formats import Renderer
    from posthouse.cli.found_records import Wanted
    from posthouse.client import Client
    from posthouse.client.group_reading import GroupReading
    from posthouse.client.positions import Start
    from posthouse.client.reading import Fetched, Reading

_MESSAGES = 1000

Topics = Annotated[
    list[str],
    typer.Argument(
        metavar="TOPIC...",
        help="Names of topics, or patterns such as 'orders-*' (in quotes) or '^orders-(eu|us)$'.",
        autocompletion=complete_topic,
    ),
]
Group = Annotated[
    str | None,
    typer.Option(
        metavar="GROUP",
        help="Read as a member of this consumer group: begin where the group stopped, share the partitions "
        "with its other members, and commit what was printed.",
        autocompletion=complete_group,
    ),
]
FromBeginning = Annotated[
    bool,
    typer.Option(
        "--from-beginning",
        metavar="",
        help="Start with the oldest message; with --group only where the group has no committed offset.",
    ),
]
Offset = Annotated[
    int | None,
    typer.Option(metavar="N", help="Start at this offset; -10 is ten before the end of each partition."),
]
Since = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Start at a time: a duration ago (90s, 15m, 1h30m, 2d) or a date."),
]
Until = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="With --key or --message-id: no messages after this time, as --since."),
]
Key = Annotated[
    str | None,
    typer.Option(
        metavar="KEY",
        help="Only messages with this key, or with it among the keys of a RocketMQ message. The broker looks "
        "for them, with an index if the topic has index.keys=true; asked at the address for operators.",
    ),
]
MessageId = Annotated[
    str | None,
    typer.Option(
        "--message-id",
        metavar="ID",
        help="Only messages with this id: RocketMQ's or AMQP's. Found as by --key.",
    ),
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
        help="How a message is printed: a line with {key}, {value}, {partition}, {offset}, {timestamp}, "
        "{headers} and {topic}; or as in kcat, with %k %s %p %o %T %h %t, %K and %S for the sizes of key "
        "and value, %R for the size of the value in 4 bytes, and \\n at the end.",
    ),
]
Raw = Annotated[
    bool,
    typer.Option("--raw", metavar="", help="Print the bytes of the values and nothing else, no line ends."),
]
Json = Annotated[
    bool,
    typer.Option(
        "--json", metavar="", help='One JSON object per message; bytes that are not UTF-8 as {"base64": …}.'
    ),
]


def register(app: typer.Typer, *, panel: str) -> None:
    app.command(
        rich_help_panel=panel,
        epilog="`posthouse consume orders --since 1h -f`\n\n"
        "`posthouse consume 'orders-*' --group audit --json`\n\n"
        "`posthouse consume orders --key 4711 --since 2d`\n\n"
        "`posthouse consume orders --from-beginning --format '%o\\t%k\\t%s\\n'`",
    )(consume)


def consume(
    context: typer.Context,
    topic: Topics,
    group: Group = None,
    from_beginning: FromBeginning = False,
    offset: Offset = None,
    since: Since = None,
    until: Until = None,
    key: Key = None,
    message_id: MessageId = None,
    partition: Partitions = None,
    follow: Follow = False,
    max: Max = None,
    format: Format = None,
    raw: Raw = False,
    json: Json = False,
    bootstrap: Bootstrap = None,
    admin: Admin = None,
) -> None:
    """Print the messages of topics.

    By default it waits for new messages until Ctrl-C. With a start (--from-beginning, --offset, --since) it
    prints up to the end of the log and stops; -f makes it wait there, and so does --group. Topics that a
    pattern matches are chosen at the start; with --group also those that are created later. Bytes that are
    not UTF-8 print as �: see --raw and --json. With --key or --message-id it prints those messages that
    there are now, and stops.
    """
    _check_exclusive(context, json, format, raw, from_beginning, offset, since)
    if group is not None and (offset is not None or since is not None or partition):
        raise typer.BadParameter(
            "a group decides itself where to read; move it with 'posthouse group reset-offsets'",
            ctx=context,
            param_hint="--offset, --since or --partition with --group",
        )
    render = _renderer(format, raw, json)
    if key is not None or message_id is not None or until is not None:
        _check_search(context, key, message_id, group, offset, follow)
        wanted = _wanted(key, message_id, since, until, partition)
        _guarded(lambda: _print_found(context, topic, wanted, render, max, bootstrap, admin))
        return
    start = _start(from_beginning, offset, since)

    def read() -> None:
        with open_client(context, bootstrap) as client:
            if group is None:
                _print(_reading(client, topic, start, partition, follow), render, max)
            else:
                with _group_reading(client, group, topic, start) as reading:
                    _print(reading, render, max, reading)

    _guarded(read)


def _guarded(read: Callable[[], None]) -> None:
    try:
        read()
    except BrokenPipeError:
        give_up_stdout()
    except KeyboardInterrupt:
        # The usual way to end; not an error.
        return


def _check_exclusive(
    context: typer.Context,
    json: bool,
    format: str | None,
    raw: bool,
    from_beginning: bool,
    offset: int | None,
    since: str | None,
) -> None:
    for count, names in (
        (json + raw + (format is not None), "--json, --raw and --format"),
        (
            from_beginning + (offset is not None) + (since is not None),
            "--from-beginning, --offset and --since",
        ),
    ):
        if count > 1:
            raise typer.BadParameter(
                "they exclude each other; give one of them", ctx=context, param_hint=names
            )


def _check_search(
    context: typer.Context,
    key: str | None,
    message_id: str | None,
    group: str | None,
    offset: int | None,
    follow: bool,
) -> None:
    if (key is None) == (message_id is None):
        raise typer.BadParameter(
            "a search is for a key or for a message id; give one of them",
            ctx=context,
            param_hint="--key, --message-id and --until",
        )
    if group is not None or offset is not None or follow:
        raise typer.BadParameter(
            "a search prints what there is now; leave them out",
            ctx=context,
            param_hint="--group, --offset and --follow with --key or --message-id",
        )


def _wanted(
    key: str | None,
    message_id: str | None,
    since: str | None,
    until: str | None,
    partitions: list[int] | None,
) -> Wanted:
    from posthouse.cli.found_records import Wanted

    return Wanted(
        key=key,
        message_id=message_id,
        since_ms=None if since is None else _moment(since, "--since"),
        until_ms=None if until is None else _moment(until, "--until"),
        partitions=tuple(partitions or ()),
    )


def _print_found(
    context: typer.Context,
    topics: list[str],
    wanted: Wanted,
    render: Renderer,
    limit: int | None,
    bootstrap: str | None,
    admin: str | None,
) -> None:
    from posthouse.cli.found_records import found_records

    out = sys.stdout.buffer
    with open_client(context, bootstrap) as client, open_admin(context, admin) as operators:
        found = (
            each for name in _names(client, topics) for each in found_records(client, operators, name, wanted)
        )
        for topic, message in islice(found, limit):
            out.write(render(topic, message))
            out.flush()


def _renderer(format: str | None, raw: bool, json: bool) -> Renderer:
    from posthouse.cli import formats

    if format is not None:
        return formats.with_format(format)
    if raw:
        return formats.as_bytes
    return formats.as_json_line if json else formats.as_line


def _reading(
    client: Client, topics: list[str], start: Start | None, partitions: list[int] | None, follow: bool
) -> Reading:
    from posthouse.client.positions import Start

    return client.reading_of(
        _names(client, topics),
        start or Start.end(),
        partitions=partitions,
        follow=follow or start is None,
    )


def _names(client: Client, topics: list[str]) -> list[str]:
    from posthouse.cli.topic_patterns import expression, is_pattern, matching
    from posthouse.client.errors import ClientError

    names = [text for text in topics if not is_pattern(text)]
    wanted = expression(text for text in topics if is_pattern(text))
    if wanted is None:
        return names
    found = matching(wanted, [info.name for info in client.topics() if not info.is_internal])
    if not names and not found:
        raise ClientError("no topic has such a name; see 'posthouse topic list' for those there are")
    return names + found


def _group_reading(client: Client, group: str, topics: list[str], start: Start | None) -> GroupReading:
    from posthouse.cli.topic_patterns import expression, is_pattern

    names = [text for text in topics if not is_pattern(text)]
    for name in names:
        client.topic(name)  # a group would wait for a topic that does not exist
    return client.group_reading(
        group,
        topics=names,
        pattern=expression(text for text in topics if is_pattern(text)),
        start=start,
    )


def _print(
    reading: Iterable[Fetched], render: Renderer, limit: int | None, group: GroupReading | None = None
) -> None:
    out = sys.stdout.buffer
    left = sys.maxsize if limit is None else limit
    for fetched in reading:
        topic = fetched.topic
        messages = islice(fetched.messages(), left)
        # Many messages in one write: it may be a system call.
        while some := list(islice(messages, _MESSAGES)):
            out.write(b"".join([render(topic, message) for message in some]))
            left -= len(some)
            if not left and group is not None:
                group.finish(fetched, some[-1].offset + 1)
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
    return Start.since(_moment(since, "--since"))


def _moment(text: str, option: str) -> int:
    try:
        return parse_moment(text, time.time_ns() // 1_000_000)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
