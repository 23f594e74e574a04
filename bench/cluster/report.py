"""The figures as a page."""

from collections.abc import Sequence
from pathlib import Path

from bench.scale import report
from bench.scale.report import Chapter, Circumstances

DOCUMENT = Path("docs/benchmarks-cluster.md")
_PACKAGES = ("posthouse", "uvloop", "psycopg", "obstore")

INTRODUCTION = """# Benchmarks of the shared storage, and of several brokers

`{command}` made this page at commit {commit}{reservation}.
It compares the log on PostgreSQL and an object store with the local engine: *local* is `posthouse serve
--data`, *inline* and *object* are `--database` with topics of `latency=inline` and `latency=object`. A
*synchronous standby* is a second PostgreSQL server that has every commit on its disk before it is
acknowledged. Objects are in {store}; *object in a directory* has them in files (`--objects file:///…`).
PostgreSQL (with syncs), its standby, the object store, brokers and load generators share one machine, its
cores and one disk, on loopback. So the **ratios** to the local engine are lower than with servers of their
own: what the servers take of the machine is shown, too. If something was measured more than once, the tables
show the median and, in brackets, the lowest and the highest.
"""


def write(chapters: Sequence[Chapter], circumstances: Circumstances, store: str) -> None:
    DOCUMENT.parent.mkdir(exist_ok=True)
    DOCUMENT.write_text(page(chapters, circumstances, store))


def page(chapters: Sequence[Chapter], circumstances: Circumstances, store: str) -> str:
    introduction = INTRODUCTION.replace("{store}", store)
    return report.document(chapters, circumstances, introduction=introduction, packages=_PACKAGES)
