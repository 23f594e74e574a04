"""Every kind of fault with the workloads that it strikes, by name."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tests.torture.campaign import Kind, MakeWorkload
from tests.torture.kinds.broken_disk import ShortWrite, SyncError
from tests.torture.kinds.clock_jump import ClockJump
from tests.torture.kinds.damage import DamagedFiles, forge_a_record
from tests.torture.kinds.disk_full import DiskFull
from tests.torture.kinds.failpoints import FailpointKill
from tests.torture.kinds.forgetting import EarlyFailpointKill, EarlyKill, SilentlyFull
from tests.torture.kinds.journal_end import JournalEnd
from tests.torture.kinds.killing import Kill
from tests.torture.kinds.pausing import Pause
from tests.torture.kinds.power_cut import PowerCut
from tests.torture.queues.workload import QueueWorkload
from tests.torture.rocket.workload import RocketWorkload
from tests.torture.rocket_grpc.workload import GrpcWorkload
from tests.torture.stream.workload import StreamWorkload


def workload(**options: Any) -> MakeWorkload:
    return lambda recorder, random: StreamWorkload(recorder, random, **options)


@dataclass(frozen=True, slots=True)
class Control:
    """A broker or a client that breaks its promises: the check must find it, or it proves nothing."""

    make: Callable[[], Kind]
    finding: str
    """What one of the anomalies must say."""
    workload: MakeWorkload = StreamWorkload
    rounds: int = 4

    def found_in(self, anomalies: list[str]) -> str:
        """What was found of what must be, empty if nothing was."""
        matches = (re.search(self.finding, anomaly) for anomaly in anomalies)
        return next((match[0] for match in matches if match), "")


@dataclass(frozen=True, slots=True)
class Entry:
    make: Callable[[], Kind]
    control: Control
    needs_mount: bool = False
    needs_namespaces: bool = False
    needs_store: bool = False
    """A server of objects that faults can strike."""
    workloads: tuple[MakeWorkload, ...] = (StreamWorkload, QueueWorkload, RocketWorkload, GrpcWorkload)
    rounds: int = 25
    """In one campaign: one data directory and one history."""
    title: str = ""
    """In reports, if it is not the name."""

    @property
    def name(self) -> str:
        return self.make().name

    @property
    def row(self) -> str:
        """Its name in reports."""
        return self.title or self.name


WORKLOADS: dict[str, MakeWorkload] = {
    "streams": StreamWorkload,
    "queues": QueueWorkload,
    "rocketmq": RocketWorkload,
    "rocketmq-grpc": GrpcWorkload,
}
"""Those of one broker, by name."""


def of_workload(entry: Entry, name: str) -> Entry | None:
    """The kind of fault with this workload alone, if it strikes that."""
    chosen = tuple(each for each in entry.workloads if getattr(each, "func", each) is WORKLOADS[name])
    return replace(entry, workloads=chosen, title=f"{entry.name}, {name}") if chosen else None


LOST = "lost write|unseen after drain|inconsistent offset|dirty visibility|committed offset went back"
"""By chance the place of what is lost is empty, given to something else, or behind damage."""
CONTROL_SEED = 3
CHANCES = 3
"""Seeds that a control may try: a fault may strike when there is nothing to lose."""

ENTRIES = (
    Entry(Kill, Control(EarlyKill, LOST)),
    Entry(FailpointKill, Control(EarlyFailpointKill, LOST)),
    Entry(PowerCut, Control(PowerCut, LOST, workload(durability="os")), needs_mount=True),
    Entry(Pause, Control(lambda: Pause(hang_up=1.0), "more than once", workload(careless=True))),
    Entry(SyncError, Control(lambda: SyncError(silent=True), "accepted after a failed sync")),
    Entry(ShortWrite, Control(lambda: ShortWrite(silent=True), "lost write|is damaged")),
    Entry(DiskFull, Control(SilentlyFull, LOST), needs_mount=True),
    Entry(
        ClockJump,
        Control(ClockJump, "OFFSET_OUT_OF_RANGE|expired", workload(retention_ms="3600000")),
        workloads=(
            StreamWorkload,
            QueueWorkload,
            partial(RocketWorkload, delays=False),
            partial(GrpcWorkload, delays=False),
        ),
    ),
    Entry(
        DamagedFiles,
        Control(lambda: DamagedFiles(forge_a_record), "phantom record"),
        workloads=(StreamWorkload,),
    ),
    Entry(JournalEnd, Control(lambda: JournalEnd(without_head=True), LOST, rounds=10)),
)
