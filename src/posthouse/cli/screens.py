"""The screen of `status` and `top`, in sections."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from posthouse.cli.durations import shown_duration
from posthouse.cli.output import counted
from posthouse.cli.shared_facts import shared_facts
from posthouse.cli.sizes import rounded_size
from posthouse.model.excerpts import printable

if TYPE_CHECKING:
    from posthouse.cli.snapshot import Snapshot

_RIGHT = frozenset(
    {"lag", "members", "ready", "unacked", "consumers", "oldest", "open for", "bytes", "share"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]

    @property
    def right(self) -> list[str]:
        return [column for column in self.columns if column in _RIGHT]


def headline(snapshot: Snapshot) -> str:
    overview = snapshot.overview
    state = "ready" if overview["ready"] else f"NOT READY: {'; '.join(overview['reasons'])}"
    return printable(f"posthouse {overview['version']}   {state}   process {overview['process']}")


def sections(snapshot: Snapshot, rates: dict[str, float]) -> Iterator[Section]:
    """Those that have something to show."""
    yield Section(columns=("broker", ""), rows=list(_facts(snapshot, rates)))
    if snapshot.groups:
        rows: list[tuple[object, ...]] = [
            (each["name"], each["state"], each["members"], f"{each['lag']:,}") for each in snapshot.groups
        ]
        yield Section(columns=("lagging group", "state", "members", "lag"), rows=rows)
    if snapshot.queues:
        columns = ("queue with messages", "state", "ready", "unacked", "consumers", "oldest")
        yield Section(columns=columns, rows=[_queue(each) for each in snapshot.queues])
    if snapshot.transactions:
        rows = [(each["id"], shown_duration(each["age_ms"] or 0)) for each in snapshot.transactions]
        yield Section(columns=("open transaction", "open for"), rows=rows)
    logs = [each for each in snapshot.disk["logs"] if each["bytes"]]
    if logs:
        yield Section(
            columns=("what fills the disk", "kind", "bytes", "share"), rows=disk_rows(snapshot.disk)
        )


def disk_rows(disk: dict[str, Any]) -> list[tuple[object, ...]]:
    """The largest first. The share is of everything that the broker stores."""
    journal = disk["journal"] or 0
    entries = [(_log_name(each), each["kind"], each["bytes"]) for each in disk["logs"] if each["bytes"]]
    if journal:
        entries.append(("(journal)", "journal", journal))
    whole = (disk["logs_bytes"] + journal) or 1
    return [
        (name, kind, rounded_size(size), f"{100 * size / whole:.0f}%")
        for name, kind, size in sorted(entries, key=lambda each: -each[2])
    ]


def disk_space(disk: dict[str, Any]) -> str:
    if disk["free"] is None or not disk["total"]:
        return "everything is kept in memory"
    share = 100 * disk["free"] / disk["total"]
    return f"{rounded_size(disk['free'])} free of {rounded_size(disk['total'])} ({share:.0f}%)"


def _facts(snapshot: Snapshot, rates: dict[str, float]) -> Iterator[tuple[str, str]]:
    overview = snapshot.overview
    for each in overview["listeners"]:
        where = each["address"] or "not open"
        yield (f"listener {each['name']}", f"{where}, {counted(each['connections'], 'connection')}")
    counts = (counted(overview[f"{noun}s"], noun) for noun in ("topic", "group", "queue", "exchange"))
    yield "has", ", ".join(counts)
    if "records_in" in rates:
        yield (
            "records",
            f"{rates['records_in']:,.0f}/s in ({rounded_size(rates.get('bytes_in', 0))}/s), "
            f"{rates.get('records_out', 0):,.0f}/s out ({rounded_size(rates.get('bytes_out', 0))}/s)",
        )
    if "published" in rates:
        names = ("published", "delivered", "acked", "redelivered", "dead_lettered")
        shown = (f"{rates.get(name, 0):,.0f}/s {name.replace('_', '-')}" for name in names)
        yield "messages", ", ".join(shown)
    shared = snapshot.storage.get("shared")
    if shared is None:
        yield "disk", disk_space(snapshot.disk)
    else:
        yield from shared_facts(shared)


def _queue(queue: dict[str, Any]) -> tuple[object, ...]:
    oldest = queue["oldest_age_ms"]
    name = queue["name"] if queue["namespace"] == "/" else f"{queue['name']} in {queue['namespace']}"
    age = "-" if oldest is None else shown_duration(oldest)
    return (name, queue["state"], f"{queue['ready']:,}", f"{queue['unacked']:,}", queue["consumers"], age)


def _log_name(log: dict[str, Any]) -> str:
    return f"{log['name']} in {log['namespace']}" if log["namespace"] not in (None, "/") else str(log["name"])
