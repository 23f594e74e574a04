"""The broker's process, as prometheus_client knows it, and its event loop."""

import asyncio
from collections.abc import Iterable
from typing import Final

from posthouse import __version__
from posthouse.protocols.admin.metrics.family import Family, counter, gauge, histogram
from posthouse.protocols.admin.metrics.samples import Samples
from posthouse.protocols.loop_delay import LoopDelay

INFO: Final = gauge("posthouse_info", "Always 1; the label has the version of the broker.", "version")
DELAY: Final = histogram(
    "posthouse_event_loop_delay_seconds", "How late the event loop was, looked at ten times a second."
)
PROCESS: Final = (
    gauge("process_virtual_memory_bytes", "Virtual memory size in bytes."),
    gauge("process_resident_memory_bytes", "Resident memory size in bytes."),
    gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds."),
    counter("process_cpu_seconds_total", "Total user and system CPU time spent in seconds."),
    gauge("process_open_fds", "Number of open file descriptors."),
    gauge("process_max_fds", "Maximum number of open file descriptors."),
)
FAMILIES: Final = (INFO, DELAY, *PROCESS)
_BY_NAME: Final[dict[str, Family]] = {family.name: family for family in PROCESS}


async def collect(delay: LoopDelay, samples: Samples) -> None:
    samples.add(INFO, 1, __version__)
    samples.add(DELAY, delay.seconds)
    for name, value in await asyncio.to_thread(_process):
        samples.add(_BY_NAME[name], value)


def _process() -> Iterable[tuple[str, float]]:
    """On another thread: it reads files of /proc. Nothing where there are none."""
    # Not needed before the first scrape, and it takes tens of milliseconds.
    from prometheus_client import ProcessCollector

    metrics = ProcessCollector(registry=None).collect()
    found = [(sample.name, sample.value) for metric in metrics for sample in metric.samples]
    return [(name, value) for name, value in found if name in _BY_NAME]
