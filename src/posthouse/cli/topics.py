"""`posthouse topic …`: create, list, describe, change, trim and delete topics."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from posthouse.cli.durations import parse_moment
from posthouse.cli.options import Bootstrap, Json, TopicName, Unset, none_yet, open_client, pairs_of
from posthouse.cli.output import counted, print_json, print_table, say
from posthouse.model.inert_settings import INERT_SETTINGS

if TYPE_CHECKING:
    from posthouse.client.positions import Start

app = typer.Typer(
    name="topic",
    help="Create, list, describe, change, trim and delete topics.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

_SOURCES = {1: "topic", 4: "broker", 5: "default"}

NewName = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the new topic.")]
Partitions = Annotated[int | None, typer.Option(min=1, metavar="N", help="Number of partitions.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--config", "-c", metavar="KEY=VALUE", help="A setting of the topic; may be given several times."
    ),
]
BeforeOffset = Annotated[
    int | None,
    typer.Option(
        metavar="N", help="Delete what is before this offset; -10 keeps the last ten of each partition."
    ),
]
Before = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Delete what is older: a duration ago (2d, 1h30m) or a date."),
]
Everything = Annotated[bool, typer.Option("--everything", metavar="", help="Delete all records.")]
TrimmedPartitions = Annotated[
    list[int] | None,
    typer.Option("--partition", min=0, metavar="P", help="Only of this partition; may be repeated."),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", metavar="", help="Show what would be deleted, and delete nothing.")
]
All = Annotated[bool, typer.Option("--all", metavar="", help="Also show settings that have no effect.")]


@app.command(
    epilog="`posthouse topic create orders --partitions 12 -c retention.ms=86400000`",
)
def create(
    context: typer.Context,
    topic: NewName,
    partitions: Partitions = None,
    config: Settings = None,
    json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Create a topic."""
    settings = pairs_of(config)
    with open_client(context, bootstrap) as client:
        count = client.create_topic(topic, partitions=partitions, settings=settings)
    if json:
        print_json({"topic": topic, "partitions": count})
    else:
        say(f"created topic {topic!r} with {counted(count, 'partition')}")


@app.command("list", epilog="`posthouse topic list`")
def list_topics(context: typer.Context, json: Json = False, bootstrap: Bootstrap = None) -> None:
    """List the topics with their sizes."""
    with open_client(context, bootstrap) as client:
        topics = client.topics()
        bounds = client.bounds(topics)
    rows = []
    for topic in topics:
        places = [bounds[topic.name, index] for index in range(topic.partitions)]
        rows.append((topic.name, topic.partitions, sum(place.end - place.start for place in places)))
    columns = ("topic", "partitions", "records")
    if json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    elif rows:
        print_table(columns, rows, right=columns[1:])
    else:
        say(none_yet(context, "topics", "create one with 'posthouse topic create'"))


@app.command(epilog="`posthouse topic describe orders`")
def describe(
    context: typer.Context,
    topic: TopicName,
    all: All = False,
    json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Show the partitions and settings of a topic."""
    with open_client(context, bootstrap) as client:
        info = client.topic(topic)
        bounds = client.bounds([info])
        settings = [
            each
            for each in client.topic_settings(topic)
            if all or each.is_own or each.name not in INERT_SETTINGS
        ]
    partitions = [(index, *bounds[topic, index]) for index in range(info.partitions)]
    if json:
        print_json(_described(topic, info.id, partitions, settings))
        return
    print(f"topic {topic}   id {info.id.hex()}\n")
    rows = [(index, start, end, end - start) for index, start, end in partitions]
    columns = ("partition", "start", "end", "records")
    print_table(columns, rows, right=columns)
    print()
    shown = [(each.name, each.value, _SOURCES.get(each.source, "other"), each.doc) for each in settings]
    print_table(("setting", "value", "set by", "meaning"), shown)


@app.command(epilog="`posthouse topic delete orders`")
def delete(context: typer.Context, topic: TopicName, json: Json = False, bootstrap: Bootstrap = None) -> None:
    """Delete a topic with all its records."""
    with open_client(context, bootstrap) as client:
        client.delete_topic(topic)
    if json:
        print_json({"topic": topic, "deleted": True})
    else:
        say(f"deleted topic {topic!r}")


@app.command(
    epilog="`posthouse topic trim orders --before 2d --dry-run`\n\n"
    "`posthouse topic trim orders --partition 3 --before-offset 120000`"
)
def trim(
    context: typer.Context,
    topic: TopicName,
    before_offset: BeforeOffset = None,
    before: Before = None,
    everything: Everything = False,
    partition: TrimmedPartitions = None,
    dry_run: DryRun = False,
    json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Delete the oldest records of a topic; the topic stays."""
    if everything + (before_offset is not None) + (before is not None) != 1:
        raise typer.BadParameter(
            "give exactly one of them", ctx=context, param_hint="--before-offset, --before and --everything"
        )
    end = _end_of_trim(before_offset, before)
    with open_client(context, bootstrap) as client:
        info = client.topic(topic)
        offsets = client.offsets(topic, end, partitions=partition)
        bounds = client.bounds([info])
        starts = offsets if dry_run else client.trim_topic(topic, offsets)
    rows = [
        (index, bounds[topic, index].start, starts[index], starts[index] - bounds[topic, index].start)
        for index in sorted(starts)
    ]
    columns = ("partition", "old start", "new start", "deleted")
    if json:
        keys = ("partition", "old_start", "new_start", "deleted")
        partitions = [dict(zip(keys, row, strict=True)) for row in rows]
        print_json({"topic": topic, "dry_run": dry_run, "partitions": partitions})
        return
    print_table(columns, rows, right=columns)
    if dry_run:
        say("nothing was deleted; leave out --dry-run to do it")


def _end_of_trim(before_offset: int | None, before: str | None) -> Start:
    from posthouse.client.positions import Start

    if before_offset is not None:
        return Start.at(before_offset)
    if before is None:
        return Start.end()
    try:
        return Start.since(parse_moment(before, time.time_ns() // 1_000_000))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--before") from None


@app.command(
    epilog="`posthouse topic alter orders --partitions 24 -c retention.ms=3600000 --unset segment.ms`",
)
def alter(
    context: typer.Context,
    topic: TopicName,
    partitions: Partitions = None,
    config: Settings = None,
    unset: Unset = None,
    json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Add partitions to a topic, or change its settings."""
    settings = pairs_of(config)
    if partitions is None and not settings and not unset:
        raise typer.BadParameter(
            "nothing to change was given", ctx=context, param_hint="--partitions, -c or --unset"
        )
    with open_client(context, bootstrap) as client:
        if settings or unset:
            client.change_topic(topic, settings=settings, unset=unset or ())
        if partitions is not None:
            client.add_partitions(topic, partitions)
    if json:
        print_json({"topic": topic, "altered": True})
    else:
        say(f"changed topic {topic!r}")


def _described(topic: str, id: bytes, partitions: list[Any], settings: Sequence[Any]) -> dict[str, Any]:
    return {
        "topic": topic,
        "id": id.hex(),
        "partitions": [{"partition": index, "start": start, "end": end} for index, start, end in partitions],
        "settings": {
            each.name: {"value": each.value, "set_by": _SOURCES.get(each.source, "other")}
            for each in settings
        },
    }
