"""The figures as a table for people and a picture for those who would rather look."""

import os
import platform
from collections.abc import Callable, Sequence
from html import escape
from importlib.metadata import version
from itertools import groupby
from pathlib import Path

from bench.scenarios import Row

DOCUMENT = Path("docs/benchmarks.md")
PICTURE = Path("docs/benchmarks.svg")
PACKAGES = ("posthouse", "uvloop", "confluent-kafka")

INTRODUCTION = """# Benchmarks

`{command}` made this page, with the versions below. It shows the throughput, latency and CPU time of Kafka
clients, consumer groups, transactions and starts. Our machines are small and shared, so single figures vary
by a factor of two from run to run. Trust the **ratios**, which compare measurements of the same run, and the
CPU per GiB.

Other pages: [queues](benchmarks-queues.md), [RocketMQ](benchmarks-rocketmq.md), [Spark](benchmarks-spark.md),
and [many connections, topics and records, and overload](benchmarks-scale.md) (`make bench-scale`).

![Throughput](benchmarks.svg)

- *copier*: a plain asyncio server that writes frames from a socket to a file, syncs, and answers
  (`bench/copier.py`). It is the baseline: the most that Python on this machine can reach if an acknowledged
  byte must be on disk.
- *broker CPU*: user and system time of the broker's process, per GiB of record bytes.
- Raw requests come from one socket with up to 4 MiB, or eight requests, in flight (`bench/wire.py`). They are
  built beforehand, so that the sender is not measured.

Weak points: a produce request costs the broker's event loop some 60 µs of Python, whatever its size. With the
batches of a busy librdkafka (about 1 MB) that is little compared with the copying. With 16 KiB batches it is
most of the time, and the copier, which does not parse what it copies, is far ahead. The CPU per GiB with
100-byte records counts record bytes only and is dominated by requests. With 10,000 partitions each batch is a
write to another file, and checkpoints have 10,000 rows.

{machine}
"""


def write(rows: Sequence[Row], command: str) -> None:
    DOCUMENT.parent.mkdir(exist_ok=True)
    parts = [INTRODUCTION.format(command=command, machine=machine(PACKAGES))]
    for section, members in groupby(rows, key=lambda row: row.section):
        parts.append(f"## {section}\n\n| | | ratio | aim |\n|---|---:|---:|---:|")
        parts += [_line(row) for row in members]
        parts.append("")
    DOCUMENT.write_text("\n".join(parts))
    throughput = [row for row in rows if row.unit == "MB/s"]
    PICTURE.write_text(picture(throughput, lambda row: row.name.startswith("copier")))


def figure(row: Row) -> str:
    decimals = 0 if row.value >= 100 else 2
    return f"{row.value:,.{decimals}f} {row.unit}"


def ratio(row: Row) -> str:
    return f"{row.ratio:.2f} × {row.ratio_to}" if row.ratio is not None else ""


def _line(row: Row) -> str:
    return f"| {row.name} | {figure(row)} | {ratio(row)} | {row.aim} |"


def machine(names: Sequence[str]) -> str:
    """What the figures were measured on; `names` are packages whose versions matter."""
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    packages = ", ".join(f"{name} {version(name)}" for name in names)
    return (
        f"Measured on {os.cpu_count()} cores ({cpu}), Linux {platform.release().partition('-')[0]}, "
        f"Python {platform.python_version()}, {packages}.\n"
    )


WIDTH, LABEL, BAR, GAP = 760, 260, 18, 8


def picture(
    rows: Sequence[Row], is_floor: Callable[[Row], bool], *, decimals: int = 0, label: int = LABEL
) -> str:
    """Horizontal bars, one scale for all; what others are compared with is paler."""
    most = max(row.value for row in rows)
    lines = []
    y = 40
    for section, members in groupby(rows, key=lambda row: row.section):
        lines.append(f'<text x="10" y="{y}" class="section">{escape(section)}</text>')
        y += 12
        for row in members:
            length = (WIDTH - label - 90) * row.value / most
            kind = "floor" if is_floor(row) else "ours"
            middle = y + BAR - 5
            lines.append(f'<text x="{label - 8}" y="{middle}" class="label">{escape(row.name)}</text>')
            lines.append(
                f'<rect x="{label}" y="{y}" width="{length:.1f}" height="{BAR}" class="{kind}" rx="2"/>'
            )
            value = f"{row.value:,.{decimals}f} {row.unit}"
            lines.append(f'<text x="{label + length + 6:.1f}" y="{middle}">{value}</text>')
            y += BAR + GAP
        y += 24
    style = (
        "text{font:12px sans-serif;fill:#333}.section{font-weight:bold}.label{text-anchor:end}"
        ".ours{fill:#2a6f97}.floor{fill:#b8c4ca}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" viewBox="0 0 {WIDTH} {y}">'
        f'<style>{style}</style><rect width="100%" height="100%" fill="white"/>' + "".join(lines) + "</svg>\n"
    )
