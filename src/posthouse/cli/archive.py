"""`posthouse archive …`: archive topics as Parquet files, and show what is archived."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer

from posthouse.cli.options import Bootstrap, Json, complete_topic, invocation_of, open_client, pass_on_login
from posthouse.cli.output import complain, counted, print_json, print_table, say, say_at_once

if TYPE_CHECKING:
    from posthouse.spark.archive.job import Archiver, Report
    from posthouse.spark.archive.status import PartitionStatus, Status
    from posthouse.spark.stop_request import StopRequest

app = typer.Typer(
    name="archive",
    help="Archive topics as Parquet files, and show what is archived.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

_COLUMNS = ("topic", "partition", "archived", "records", "bytes", "files", "lag")
_MB = 1024 * 1024

Topics = Annotated[
    list[str], typer.Argument(metavar="TOPIC", help="Names of topics.", autocompletion=complete_topic)
]
SomeTopics = Annotated[
    list[str] | None,
    typer.Argument(metavar="TOPIC", help="Only these topics; by default all topics of the archive."),
]
Place = Annotated[
    str,
    typer.Option(
        "--to",
        "--from",
        metavar="DIR|s3://…",
        help="Location of the archive; on a cluster, storage that all machines share.",
    ),
]
Continuous = Annotated[
    bool,
    typer.Option("--continuous", metavar="", help="Repeat until Ctrl-C or SIGTERM, every --every seconds."),
]
Compact = Annotated[
    bool, typer.Option("--compact/--no-compact", metavar="", help="Also merge small files from time to time.")
]
Every = Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Interval of --continuous.")]
FileMegabytes = Annotated[int, typer.Option(min=1, metavar="MB", help="Target size of a file.")]
ObjectStore = Annotated[
    str | None,
    typer.Option(
        metavar="s3://…",
        help="Object store of the brokers, to be read with your own credentials; by default brokers sign.",
    ),
]
Objects = Annotated[
    bool,
    typer.Option(
        "--objects/--no-objects", metavar="", help="Read older records from the object store of the brokers."
    ),
]
Master = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Spark master, such as spark://host:7077; by default this machine."),
]


@app.command(epilog="`posthouse archive run orders payments --to /data/archive --continuous --every 60`")
def run(
    context: typer.Context,
    topics: Topics,
    to: Place,
    continuous: Continuous = False,
    every: Every = 60.0,
    compact: Compact = True,
    file_mb: FileMegabytes = 128,
    objects: Objects = True,
    object_store: ObjectStore = None,
    master: Master = None,
    json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Write committed records of topics to Parquet files, from where the last run ended.

    When files and manifest are on disk, the group `posthouse.archive` commits the archived offsets. The
    broker may then delete these records of topics with `retention.local.ms` or `retention.local.bytes`.
    """
    from posthouse.client.errors import BrokerUnreachable

    options = {"readObjects": str(objects).lower()}
    if object_store is not None:
        options["objectStore"] = object_store
    archiver = _archiver(context, bootstrap, to, file_mb, master, options)
    with _stopping() as stop:
        while True:
            try:
                with _progress() as show:
                    report = archiver.run(topics, progress=show, stop=lambda: stop.is_wanted, compact=compact)
                _tell(report, json)
            except BrokerUnreachable as error:
                if not continuous:
                    raise
                complain(f"{error}; trying again in {every:g} s")
            if not continuous:
                return
            stop.wait(every)
            if stop.is_wanted:
                return


@app.command(epilog="`posthouse archive status --from /data/archive --bootstrap localhost:9092`")
def status(context: typer.Context, place: Place, json: Json = False, bootstrap: Bootstrap = None) -> None:
    """Show what is archived and, with a broker's address, the lag behind the log."""
    _need("pyarrow")
    from posthouse.spark.archive.manifest import Manifest
    from posthouse.spark.archive.root import Root
    from posthouse.spark.archive.status import live_ends, status_of

    state = Manifest.open(Root(place)).state
    live = None
    if invocation_of(context, bootstrap).given_bootstrap():
        with open_client(context, bootstrap) as client:
            live = live_ends(client)
    found = status_of(state, live)
    if json:
        print_json(_described(found))
        return
    print_table(_COLUMNS, [_row(each, found) for each in found.partitions], right=_COLUMNS[1:])
    say(
        f"{counted(found.records, 'record')} in {counted(found.files, 'file')} of {_size(found.bytes)}, "
        f"version {found.version} of the manifest"
    )
    if found.not_archived:
        say(f"not archived at all: {', '.join(found.not_archived)}")


@app.command("compact", epilog="`posthouse archive compact --to /data/archive`")
def compact_files(
    context: typer.Context,
    to: Place,
    topics: SomeTopics = None,
    file_mb: FileMegabytes = 128,
    master: Master = None,
    json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Merge small files of each day into larger ones. The merged files are deleted a day later."""
    _need("pyarrow")
    from posthouse.spark.archive.manifest import Manifest
    from posthouse.spark.archive.root import Root

    Manifest.open(Root(to))
    archiver = _archiver(context, bootstrap, to, file_mb, master)
    with _stopping() as stop:
        merged = archiver.compact(topics or None, stop=lambda: stop.is_wanted)
    if json:
        print_json({"merged": merged})
    else:
        say(f"merged {counted(merged, 'file')}" if merged else "there is nothing to merge")


def _archiver(
    context: typer.Context,
    bootstrap: str | None,
    place: str,
    file_mb: int,
    master: str | None,
    options: Mapping[str, str] | None = None,
) -> Archiver:
    _need("pyspark")
    from posthouse.spark.archive.job import Archiver, Limits
    from posthouse.spark.session import session

    pass_on_login(context, bootstrap)
    limits = Limits(target_bytes=file_mb * _MB)
    spark = session("posthouse archive", master=master)
    address = invocation_of(context, bootstrap).kafka_address
    return Archiver(spark, address, place, limits=limits, options=options)


def _need(package: str) -> None:
    from posthouse.spark.errors import SparkError

    if find_spec(package) is None:
        raise SparkError("the archive needs Spark; install it with 'pip install \"posthouse[spark]\"'")


@contextmanager
def _stopping() -> Iterator[StopRequest]:
    """Made by the first Ctrl-C or SIGTERM: the current step is finished. A second one does not wait."""
    from posthouse.spark.stop_request import StopRequest

    stop = StopRequest()

    def ask(number: int, frame: object) -> None:
        stop()
        say_at_once("stopping after this step; again to stop at once")
        for each, handler in before.items():
            signal.signal(each, handler)

    # Spark has installed its own handler, which cancels its jobs.
    before = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.getsignal(signal.SIGTERM)}
    for each in before:
        signal.signal(each, ask)
    try:
        yield stop
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@contextmanager
def _progress() -> Iterator[Callable[[Report], None]]:
    """A progress bar on a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda report: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("archiving", total=None)

        def show(report: Report) -> None:
            text = f"archiving, {_size(report.bytes)} written"
            bar.update(task, description=text, total=report.waiting, completed=report.offsets)

        yield show


def _tell(report: Report, json: bool) -> None:
    for loss in report.losses:
        complain(
            f"offsets {loss.lost.start} to {loss.lost.end - 1} of topic {loss.topic!r}, partition "
            f"{loss.partition}, were deleted before they were archived; raise retention.ms"
        )
    if json:
        print_json(asdict(report))
        return
    merged = f", merged {counted(report.merged, 'small file')}" if report.merged else ""
    files = f"{counted(report.files, 'file')} of {_size(report.bytes)}"
    say(f"archived {counted(report.records, 'record')} in {files}{merged}")


def _row(each: PartitionStatus, found: Status) -> tuple[object, ...]:
    ranges = " ".join(f"{start}–{end - 1}" for start, end in each.archived)
    name = f"{each.topic} (deleted, {each.topic_id[:8]})" if each.topic_id in found.gone else each.topic
    lag = "-" if each.lag is None else f"{each.lag:,}"
    size = _size(each.bytes)
    return name, each.partition, ranges or "-", f"{each.records:,}", size, f"{each.files:,}", lag


def _described(found: Status) -> dict[str, Any]:
    return {
        "version": found.version,
        "records": found.records,
        "bytes": found.bytes,
        "files": found.files,
        "partitions": [
            {
                "topic": each.topic,
                "topic_id": each.topic_id,
                "partition": each.partition,
                "archived": [list(range) for range in each.archived],
                "records": each.records,
                "bytes": each.bytes,
                "files": each.files,
                "end": each.end,
                "lag": each.lag,
            }
            for each in found.partitions
        ],
        "not_archived": list(found.not_archived),
    }


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
