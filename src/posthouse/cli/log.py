"""`posthouse log …`: inspect a broker's files. Files are only read, so the broker may be running."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from posthouse.cli.byte_progress import byte_progress
from posthouse.cli.options import Json
from posthouse.cli.output import counted, one_line, print_json, print_table, say, shown
from posthouse.model.excerpts import printable

if TYPE_CHECKING:
    from posthouse.records.record import Record
    from posthouse.storage.files.verify import Finding, Step, Tally

app = typer.Typer(
    name="log",
    help="Inspect and check the files of a broker, running or not.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

_BATCH_COLUMNS = ("position", "bytes", "first", "last", "records", "codec", "newest", "producer", "notes")
_RECORD_COLUMNS = ("offset", "timestamp", "key", "value", "headers")
_NUMBERS = ("position", "bytes", "first", "last", "records", "newest", "offset", "timestamp")
_SHOWN_BYTES = 60

Segment = Annotated[
    Path, typer.Argument(metavar="SEGMENT", help="A file such as 0-00000000000000000000.log.")
]
Directory = Annotated[
    Path, typer.Argument(metavar="DIR", help="Data directory, as given to 'posthouse serve --data'.")
]
Records = Annotated[
    bool, typer.Option("--records", metavar="", help="Show the records, not only the batches.")
]


@app.command(epilog="`posthouse log dump data/topics/4f…/0-00000000000000000000.log --records`")
def dump(segment: Segment, records: Records = False, json: Json = False) -> None:
    """Show the batches of one segment file and, with --records, their records."""
    from posthouse.storage.files.verify import read_segment

    steps = read_segment(segment)
    if json:
        for step in steps:
            print_json(_step_fields(step, records))
    elif records:
        rows = (_record_row(each) for step in steps for each in _records_or_damage(step))
        print_table(_RECORD_COLUMNS, rows, right=_NUMBERS)
    else:
        print_table(_BATCH_COLUMNS, map(_batch_row, steps), right=_NUMBERS)


@app.command(epilog="`posthouse log verify /var/lib/posthouse`")
def verify(directory: Directory, json: Json = False) -> None:
    """Check every file of a data directory, and report damage.

    Reads the catalog, the journal, every batch of every segment with its checksum, and the indexes, and
    changes nothing. The exit code is 0 if everything is intact and 1 if something is damaged.
    """
    from posthouse.storage.files.verify import Verification

    damaged = False
    with byte_progress("checking") as (begin, advance):
        verification = Verification(directory, advance)
        begin(verification.total_bytes)
        for finding in verification.findings():
            damaged |= finding.is_damage
            if json:
                print_json({"event": "finding", **asdict(finding)})
            else:
                print(printable(_finding_line(finding)))
    if json:
        print_json({"event": "done", "damaged": damaged, **asdict(verification.tally)})
    else:
        say(_summary(verification.tally, damaged))
    if damaged:
        raise typer.Exit(1)


def _finding_line(finding: Finding) -> str:
    parts = [f"{'DAMAGED' if finding.is_damage else 'note'} {finding.path}: {finding.problem}"]
    if finding.position is not None and finding.end is not None:
        parts.append(f"bytes {finding.position} to {finding.end - 1}")
    elif finding.end is not None:
        parts.append(f"before byte {finding.end}")
    if finding.first_offset is not None and finding.first_offset != finding.next_offset:
        last = "the end" if finding.next_offset is None else str(finding.next_offset - 1)
        parts.append(f"offsets {finding.first_offset} to {last}")
    return ", ".join(parts)


def _summary(tally: Tally, damaged: bool) -> str:
    verdict = "there is damage, see above" if damaged else "no damage was found"
    looked_at = (
        counted(tally.topics, "topic"),
        counted(tally.segments, "segment"),
        counted(tally.records, "record"),
        counted(tally.bytes, "byte"),
        counted(tally.frames, "journal frame"),
    )
    return f"{verdict}; looked at {', '.join(looked_at)}"


def _batch_row(step: Step) -> tuple[object, ...]:
    header, damage = step.header, step.damage
    if header is None:
        assert damage is not None
        size = damage.end - damage.position
        return (damage.position, size, damage.first_offset, "", "", "", "", "", "DAMAGED or not finished")
    notes = [
        text
        for text, is_so in (
            ("log-append time", header.is_log_append_time),
            ("transactional", header.is_transactional),
            ("control", header.is_control),
        )
        if is_so
    ]
    producer = f"{header.producer_id}/{header.producer_epoch}" if header.has_producer else ""
    return (
        step.position,
        header.length,
        header.base_offset,
        header.last_offset,
        header.count,
        header.codec.name.lower(),
        header.max_timestamp,
        producer,
        ", ".join(notes),
    )


def _records_or_damage(step: Step) -> Iterator[Record | str]:
    from posthouse.model.errors import PosthouseError
    from posthouse.records.record import iter_records

    if step.header is None:
        yield f"DAMAGED or not finished: {step.damage}"
        return
    try:
        yield from iter_records(step.batch)
    except PosthouseError as error:
        yield f"DAMAGED: batch at byte {step.position}: {error}"


def _record_row(each: Record | str) -> tuple[object, ...]:
    if isinstance(each, str):
        return ("", "", "", each, "")
    headers = ", ".join(f"{name}={shown(value)}" for name, value in each.headers)
    return (each.offset, each.timestamp, _short(each.key), _short(each.value), headers)


def _short(data: bytes | None) -> str:
    text = shown(data)
    return "null" if text is None else one_line(text, _SHOWN_BYTES)


def _step_fields(step: Step, records: bool) -> dict[str, Any]:
    header = step.header
    if header is None:
        assert step.damage is not None
        return {"damaged": True, **asdict(step.damage)}
    fields: dict[str, Any] = {
        "position": step.position,
        **header._asdict(),
        "codec": header.codec.name.lower(),
    }
    if records:
        fields["records"] = [
            {"damaged": each}
            if isinstance(each, str)
            else {
                "offset": each.offset,
                "timestamp": each.timestamp,
                "key": shown(each.key),
                "value": shown(each.value),
                "headers": [[name, shown(value)] for name, value in each.headers],
            }
            for each in _records_or_damage(step)
        ]
    return fields
