"""`posthouse group …`: list, describe and delete consumer groups, and reset their offsets."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer

from posthouse.cli.delivery_limits import limit_group
from posthouse.cli.durations import parse_date, parse_duration, parse_moment
from posthouse.cli.options import (
    Bootstrap,
    GroupName,
    GroupNames,
    Json,
    Unset,
    complete_topic,
    none_yet,
    open_client,
    pairs_of,
)
from posthouse.cli.output import complain, print_json, print_table, say
from posthouse.model.excerpts import printable

if TYPE_CHECKING:
    from posthouse.client import Client
    from posthouse.client.group_offsets import GroupOffset, OffsetChange
    from posthouse.client.groups import GroupInfo, GroupMember
    from posthouse.client.positions import Start
    from posthouse.client.topic_partitions import TopicPartition

app = typer.Typer(
    name="group",
    help="List, describe, alter, reset and delete consumer groups.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

_MEMBER_COLUMNS = ("member", "client", "host", "partitions")
_OFFSET_COLUMNS = ("topic", "partition", "committed", "end", "lag", "member")
_CHANGE_COLUMNS = ("topic", "partition", "old", "new")
_NUMBERS = ("partition", "committed", "end", "lag", "old", "new")
_PLACES = "--to-earliest, --to-latest, --to-offset, --to-time and --by-duration"

Topics = Annotated[
    list[str],
    typer.Option(
        "--topic",
        metavar="TOPIC[:P,P…]",
        help="A topic, or only these partitions of it; may be given several times.",
        autocompletion=complete_topic,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--config", "-c", metavar="KEY=VALUE", help="A setting of the group; may be given several times."
    ),
]
ToEarliest = Annotated[bool, typer.Option("--to-earliest", metavar="", help="Reset to the oldest message.")]
ToLatest = Annotated[
    bool, typer.Option("--to-latest", metavar="", help="Reset to the end, after the newest message.")
]
ToOffset = Annotated[
    int | None,
    typer.Option(metavar="N", help="Reset to this offset; -10 is ten before the end of each partition."),
]
ToTime = Annotated[
    str | None,
    typer.Option(
        metavar="DATE", help="Reset to a date such as 2026-01-31T12:00; local time, or with a zone."
    ),
]
ByDuration = Annotated[
    str | None,
    typer.Option(metavar="DURATION", help="Reset to a duration ago: 1h, '1 hour ago'."),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", metavar="", help="Show what would change, and change nothing.")
]


To = Annotated[
    str,
    typer.Option(
        metavar="PLACE",
        help="earliest, latest, an offset (-10 is ten before the end), a duration ago (1h, '1 hour ago') or "
        "a date (2026-01-31T12:00).",
    ),
]
SomeTopics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="TOPIC[:P,P…]",
        help="Only of this topic or these partitions of it; by default of all that the group has offsets in. "
        "May be given several times.",
        autocompletion=complete_topic,
    ),
]
WithLag = Annotated[
    bool, typer.Option("--lag", metavar="", help="Also show how many records each group has yet to read.")
]


@app.command("list", epilog="`posthouse group list`\n\n`posthouse group list --lag`")
def list_groups(
    context: typer.Context, lag: WithLag = False, json: Json = False, bootstrap: Bootstrap = None
) -> None:
    """List the groups."""
    with open_client(context, bootstrap) as client:
        groups = client.groups()
        lags = {group.name: _lag(client.group_offsets(group)) for group in groups} if lag else {}
    columns: tuple[str, ...] = ("group", "state", "protocol", "assignor", "members")
    rows: list[tuple[object, ...]] = [
        (group.name, group.state, str(group.protocol), group.assignor, len(group.members)) for group in groups
    ]
    if lag:
        columns += ("lag",)
        rows = sorted([(*row, lags[str(row[0])]) for row in rows], key=lambda row: -int(str(row[-1])))
    if json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    elif rows:
        print_table(columns, rows, right=("members", "lag"))
    else:
        say(none_yet(context, "groups", "one begins when a consumer with a 'group.id' connects"))


@app.command(epilog="`posthouse group describe billing`")
def describe(
    context: typer.Context, group: GroupName, json: Json = False, bootstrap: Bootstrap = None
) -> None:
    """Show the members of a group, its committed offsets and its lag.

    The lag of a partition is the distance between the committed offset and the end of the log.
    """
    with open_client(context, bootstrap) as client:
        info = client.group(group)
        offsets = client.group_offsets(info)
    if json:
        print_json(_described(info, offsets))
        return
    assignor = f"   assignor {info.assignor}" if info.assignor else ""
    print(printable(f"group {info.name}   state {info.state}   protocol {info.protocol}{assignor}") + "\n")
    if info.members:
        print_table(_MEMBER_COLUMNS, map(_member_row, info.members))
        print()
    rows = [
        (
            each.topic,
            each.partition,
            _or_dash(each.committed),
            each.end,
            _or_dash(each.lag),
            each.member or "-",
        )
        for each in offsets
    ]
    if rows:
        print_table(_OFFSET_COLUMNS, rows, right=_NUMBERS)
    else:
        say(f"group {group!r} has committed no offsets")


@app.command(
    epilog="`posthouse group reset-offsets billing --topic orders --by-duration '1 hour ago' --dry-run`\n\n"
    "`posthouse group reset-offsets billing --topic orders:0,3 --topic users --to-earliest`"
)
def reset_offsets(
    context: typer.Context,
    group: GroupName,
    topic: Topics,
    to_earliest: ToEarliest = False,
    to_latest: ToLatest = False,
    to_offset: ToOffset = None,
    to_time: ToTime = None,
    by_duration: ByDuration = None,
    dry_run: DryRun = False,
    json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Reset the offsets of a group, for example to read messages again.

    The group must have no members: stop its consumers first; those of RocketMQ go on from there. A group that
    does not exist is created. If a partition does not have the offset, the nearest one is used.
    """
    topics = _topics(topic)
    given = (to_offset is not None) + (to_time is not None) + (by_duration is not None)
    if to_earliest + to_latest + given != 1:
        raise typer.BadParameter("give exactly one of them", ctx=context, param_hint=_PLACES)
    start = _start(to_earliest, to_offset, to_time, by_duration)
    with open_client(context, bootstrap) as client:
        changes = client.reset_offsets(group, topics, start, dry_run=dry_run)
    _report_changes(group, changes, dry_run, json)


@app.command(
    epilog="`posthouse group reset billing --to '1 hour ago' --dry-run`\n\n"
    "`posthouse group reset billing --to earliest --topic orders`"
)
def reset(
    context: typer.Context,
    group: GroupName,
    to: To,
    topic: SomeTopics = None,
    dry_run: DryRun = False,
    json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Move a group to another place, in everything that it reads.

    The group must have no members: stop its consumers first; those of RocketMQ go on from there. If a
    partition does not have the offset, the nearest one is used.
    """
    start = _place(to)
    with open_client(context, bootstrap) as client:
        topics = _topics(topic) if topic else _read_by(client, group)
        changes = client.reset_offsets(group, topics, start, dry_run=dry_run)
    _report_changes(group, changes, dry_run, json)


def _place(text: str) -> Start:
    from posthouse.client.positions import Start

    if text in ("earliest", "beginning"):
        return Start.beginning()
    if text in ("latest", "end"):
        return Start.end()
    if text.removeprefix("-").isdecimal():
        return Start.at(int(text))
    try:
        return Start.since(parse_moment(text, time.time_ns() // 1_000_000))
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no place; write earliest, latest, an offset, a duration such as 1h or a date such "
            "as 2026-01-31T12:00",
            param_hint="--to",
        ) from None


def _read_by(client: Client, group: str) -> dict[str, set[int] | None]:
    """The partitions in which the group has committed offsets."""
    from posthouse.client.errors import ClientError

    topics: dict[str, set[int] | None] = {}
    for each in client.group_offsets(client.group(group)):
        if each.committed is not None:
            known = topics.setdefault(each.topic, set())
            assert known is not None
            known.add(each.partition)
    if not topics:
        raise ClientError(f"group {group!r} has committed no offsets; give --topic")
    return topics


def _lag(offsets: Iterable[GroupOffset]) -> int:
    return sum(each.lag or 0 for each in offsets)


def _report_changes(group: str, changes: Sequence[OffsetChange], dry_run: bool, json: bool) -> None:
    if json:
        print_json({"group": group, "dry_run": dry_run, "offsets": [_change(each) for each in changes]})
        return
    rows = [(each.topic, each.partition, _or_dash(each.old), each.new) for each in changes]
    print_table(_CHANGE_COLUMNS, rows, right=_NUMBERS)
    if dry_run:
        say("nothing was changed; leave out --dry-run to do it")
    else:
        say(f"group {group!r} continues from these offsets")


@app.command(epilog="`posthouse group alter billing -c share.delivery.count.limit=3`")
def alter(
    context: typer.Context,
    group: GroupName,
    config: Settings = None,
    unset: Unset = None,
    json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Change the settings of a group, which need not exist yet."""
    settings = pairs_of(config)
    if not settings and not unset:
        raise typer.BadParameter("nothing to change was given", ctx=context, param_hint="-c or --unset")
    with open_client(context, bootstrap) as client:
        client.change_group(group, settings=settings, unset=unset or ())
    if json:
        print_json({"group": group, "altered": True})
    else:
        say(f"changed group {group!r}")


app.command("limit", epilog="`posthouse group limit billing --rate 100/s --concurrency 8`")(limit_group)


@app.command(epilog="`posthouse group delete billing billing-test`")
def delete(
    context: typer.Context, groups: GroupNames, json: Json = False, bootstrap: Bootstrap = None
) -> None:
    """Delete groups that have no members, with their offsets.

    If one group cannot be deleted, the others are deleted all the same.
    """
    with open_client(context, bootstrap) as client:
        results = client.delete_groups(groups)
    if json:
        print_json([{"group": name, "deleted": error is None} for name, error in results.items()])
    for name, error in results.items():
        if error is not None:
            complain(str(error))
        elif not json:
            say(f"deleted group {name!r}")
    if any(results.values()):
        raise typer.Exit(1)


def _topics(texts: Sequence[str]) -> dict[str, set[int] | None]:
    """The partitions of each topic; None means all of them."""
    topics: dict[str, set[int] | None] = {}
    for text in texts:
        name, colon, listed = text.partition(":")
        parts = [part.strip() for part in listed.split(",")]
        if not name or (colon and not all(part.isdecimal() for part in parts)):
            raise typer.BadParameter(
                f"{text!r} is no topic with partitions; write for example orders or orders:0,3",
                param_hint="--topic",
            )
        known = topics.get(name, set())
        topics[name] = known | {int(part) for part in parts} if colon and known is not None else None
    return topics


def _start(to_earliest: bool, to_offset: int | None, to_time: str | None, by_duration: str | None) -> Start:
    from posthouse.client.positions import Start

    if to_earliest:
        return Start.beginning()
    if to_offset is not None:
        return Start.at(to_offset)
    try:
        if to_time is not None:
            return Start.since(parse_date(to_time))
        if by_duration is not None:
            return Start.since(max(0, time.time_ns() // 1_000_000 - parse_duration(by_duration)))
    except ValueError as error:
        hint = "--by-duration" if to_time is None else "--to-time"
        raise typer.BadParameter(str(error), param_hint=hint) from None
    return Start.end()


def _or_dash(number: int | None) -> int | str:
    return "-" if number is None else number


def _member_row(member: GroupMember) -> tuple[str, ...]:
    return (member.id, member.client, member.host, _listed(member.partitions))


def _listed(partitions: Iterable[TopicPartition]) -> str:
    by_topic = groupby(partitions, key=lambda place: place.topic)
    texts = [f"{topic}:{','.join(str(place.partition) for place in places)}" for topic, places in by_topic]
    return " ".join(texts) or "-"


def _described(info: GroupInfo, offsets: Iterable[GroupOffset]) -> dict[str, Any]:
    return {
        "group": info.name,
        "state": info.state,
        "protocol": str(info.protocol),
        "assignor": info.assignor,
        "members": [
            {
                "member": member.id,
                "instance": member.instance,
                "client": member.client,
                "host": member.host,
                "partitions": [place._asdict() for place in member.partitions],
            }
            for member in info.members
        ],
        "offsets": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "committed": each.committed,
                "end": each.end,
                "lag": each.lag,
                "member": each.member,
            }
            for each in offsets
        ],
    }


def _change(change: OffsetChange) -> dict[str, Any]:
    return {"topic": change.topic, "partition": change.partition, "old": change.old, "new": change.new}
