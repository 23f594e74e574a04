"""`posthouse produce`: send every line of the input as a message."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posthouse.cli.escapes import unescaped
from posthouse.cli.options import Bootstrap, TopicName, open_client
from posthouse.cli.output import counted, say
from posthouse.model.excerpts import printable

if TYPE_CHECKING:
    from posthouse.cli.record_json import NewRecord
    from posthouse.client.producer import Producer

_CHUNK = 256 * 1024


class Compression(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


KeySeparator = Annotated[
    str | None,
    typer.Option(
        "--key-separator",
        "-K",
        metavar="TEXT",
        help="Separator of key and value in a line, for example ':' or '\\t' (a tab).",
    ),
]
Tombstones = Annotated[
    bool,
    typer.Option(
        "--tombstones",
        "-Z",
        metavar="",
        help="Write an empty value as a tombstone (null), which deletes its key from a compacted topic.",
    ),
]
JsonLines = Annotated[
    bool,
    typer.Option(
        "--json",
        metavar="",
        help='Every line is a JSON object: {"key", "value", "headers", "partition", "timestamp"}; only value '
        "is needed. What 'consume --json' prints can be written again.",
    ),
]
File = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Read this file instead of stdin, with a progress bar.")
]
Headers = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", metavar="KEY=VALUE", help="A header for every message; may be repeated."),
]
CompressionOption = Annotated[Compression, typer.Option(help="Compression of batches.")]
Partition = Annotated[int | None, typer.Option(min=0, metavar="P", help="Write to this partition only.")]


def register(app: typer.Typer, *, panel: str) -> None:
    app.command(
        rich_help_panel=panel,
        epilog="`echo hello | posthouse produce greetings`\n\n"
        "`posthouse produce users --key-separator '\\t' --file users.txt -H source=crm`\n\n"
        "`posthouse consume orders --from-beginning --json | posthouse produce orders-copy --json`",
    )(produce)


def produce(
    context: typer.Context,
    topic: TopicName,
    key_separator: KeySeparator = None,
    tombstones: Tombstones = False,
    json: JsonLines = False,
    file: File = None,
    header: Headers = None,
    compression: CompressionOption = Compression.NONE,
    partition: Partition = None,
    bootstrap: Bootstrap = None,
) -> None:
    """Send every line of stdin, or of a file, to a topic as one message.

    The topic is created if it does not exist and the broker allows that. Messages with the same key are
    written to the same partition, which is the one that Kafka's own clients choose.
    """
    from posthouse.cli.record_json import from_json
    from posthouse.records.compression import Codec

    if json and (key_separator is not None or tombstones):
        raise typer.BadParameter(
            "JSON says itself what is a key and what is null",
            ctx=context,
            param_hint="--json with --key-separator or --tombstones",
        )
    headers = tuple(_header(text) for text in header or ())
    read = from_json if json else _text_reader(key_separator, tombstones)
    with _opened(file) as (source, advance), open_client(context, bootstrap) as client:
        producer = client.producer(topic, codec=Codec[compression.name])
        try:
            with producer:
                for number, line in _lines(source, producer, advance):
                    key, value, own, place, timestamp = read(line, number)
                    producer.send(
                        value,
                        key,
                        (*own, *headers),
                        partition=place if partition is None else partition,
                        timestamp=timestamp,
                    )
        finally:
            say(f"{counted(producer.acknowledged, 'message')} written to {topic!r}")


def _text_reader(key_separator: str | None, tombstones: bool) -> Callable[[bytes, int], NewRecord]:
    from posthouse.cli.record_json import NewRecord

    separator = None if key_separator is None else unescaped(key_separator)
    if separator == b"":
        raise typer.BadParameter("it is empty; give a text such as ':'", param_hint="--key-separator")

    def read(line: bytes, number: int) -> NewRecord:
        key, value = (None, line) if separator is None else _split(line, separator, number)
        return NewRecord(key, None if tombstones and not value else value)

    return read


def _lines(source: int, producer: Producer, advance: Callable[[int], None]) -> Iterator[tuple[int, bytes]]:
    """Numbered lines without line ends. Sends pending messages whenever the input pauses."""
    number, rest = 0, b""
    while chunk := os.read(source, _CHUNK):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            number += 1
            yield number, line
        advance(len(chunk))
        if not select.select([source], [], [], 0)[0]:
            producer.flush()
    if rest:
        yield number + 1, rest


def _split(line: bytes, separator: bytes, number: int) -> tuple[bytes, bytes]:
    from posthouse.client.errors import BadArgument

    key, found, value = line.partition(separator)
    if not found:
        shown = separator.decode()
        raise BadArgument(
            f"line {number} has no {shown!r} between key and value; add it, or leave out --key-separator"
        )
    return key, value


def _header(text: str) -> tuple[str, bytes]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--header")
    return key, value.encode()


@contextmanager
def _opened(file: Path | None) -> Iterator[tuple[int, Callable[[int], None]]]:
    """The descriptor to read from, and a function that reports progress."""
    if file is None:
        yield sys.stdin.fileno(), lambda size: None
        return
    with file.open("rb") as opened, _progress(file) as advance:
        yield opened.fileno(), advance


@contextmanager
def _progress(file: Path) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    console = Console(stderr=True)
    name = TextColumn("{task.description}", markup=False)
    columns = (name, BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(printable(file.name), total=file.stat().st_size)
        yield lambda size: progress.advance(task, size)
