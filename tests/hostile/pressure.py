"""`python -m tests.hostile.pressure [NAME ...]`: a client that behaves beside one that does not.

For each attack a broker of its own, and in turns the client alone and the client while the attack goes on as
fast as it can, from another process. Printed are the p99 of the client's produce requests in both, their
ratio, and how much the broker's memory grew at its peak. Trust the ratios: single figures move with the
machine.

Controls are no attacks: clients that ask for nothing unusual, as fast as they can. What they cost is what any
second client costs on this machine, and there is no aim for it. Attacks that are not refused are measured by
the control that is like them.
"""

import argparse
import multiprocessing
import os
import statistics
import sys
import tempfile
from pathlib import Path

from tests.hostile.attacks import CONTROLS, EVERY, SERVED, Scene
from tests.hostile.loris import SlowLoris, allow_files
from tests.hostile.peers import GoodClient
from tests.hostile.victim import ALLOWED_GROWTH, MIB, Victim, victim

AIMED_RATIO = 2.0
LORIS_CONNECTIONS = 10_000
_WARM_UP_SECONDS = 2.0
_PATIENCE_SECONDS = 60
_TURNS = 4
_SPREAD = 1.25
"""So much one figure differs from another of the same."""
# Attackers have machines of their own; here they must not take the processors away from those measured.
_NICENESS = 15


class Signals:
    """Between the process that measures and the one that attacks."""

    def __init__(self) -> None:
        self.go = multiprocessing.Event()
        self.is_idle = multiprocessing.Event()
        self.over = multiprocessing.Event()

    def rest(self) -> None:
        self.go.clear()
        if not self.is_idle.wait(_PATIENCE_SECONDS):
            raise RuntimeError("the attack does not stop")

    def attack(self) -> None:
        self.is_idle.clear()
        self.go.set()


def repeat(name: str, target: Victim, signals: Signals) -> None:
    scene = Scene(target)
    attack = CONTROLS.get(name) or EVERY[name]
    attack(scene)
    while not signals.over.is_set():
        if signals.go.is_set():
            attack(scene)
        else:
            signals.is_idle.set()
            signals.go.wait(0.1)


def slow_loris(protocol: str, target: Victim, signals: Signals) -> None:
    address = target.kafka_address if protocol == "kafka" else target.amqp_address
    while not signals.over.is_set():
        signals.is_idle.set()
        if not signals.go.wait(0.1):
            continue
        with SlowLoris(address, LORIS_CONNECTIONS) as loris:
            while signals.go.is_set() and not signals.over.is_set():
                loris.connect_all()
                loris.drip()
                signals.over.wait(0.5)


LORIS = {"slow loris, Kafka": "kafka", "slow loris, AMQP": "amqp"}
NAMES = [*CONTROLS, *EVERY, *LORIS]


def attacker(name: str, target: Victim, signals: Signals) -> None:
    os.nice(_NICENESS)
    if name in LORIS:
        slow_loris(LORIS[name], target, signals)
    else:
        repeat(name, target, signals)


def p99(times: list[float]) -> float:
    return statistics.quantiles(times, n=100)[98]


def measure(name: str, seconds: float) -> tuple[float, float, int]:
    """Milliseconds without and with the attack, and bytes of growth."""
    signals = Signals()
    alone: list[float] = []
    beside: list[float] = []
    with tempfile.TemporaryDirectory() as data, victim(Path(data)) as target:
        with GoodClient(target.kafka_address) as good:
            good.produce_for(_WARM_UP_SECONDS)
            before = target.begin()
            process = multiprocessing.Process(target=attacker, args=(name, target, signals))
            process.start()
            try:
                # In turns, because whatever else the machine does comes and goes.
                for _ in range(_TURNS):
                    signals.rest()
                    alone += good.produce_for(seconds / _TURNS)
                    signals.attack()
                    beside += good.produce_for(seconds / _TURNS)
            finally:
                signals.over.set()
                process.join(_PATIENCE_SECONDS)
                process.kill()
            if process.exitcode:
                raise RuntimeError(f"the attack {name!r} ended with {process.exitcode}")
        return p99(alone) * 1000, p99(beside) * 1000, target.peak() - before


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.pressure", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names of attacks; all if there is none")
    parser.add_argument("--seconds", type=float, default=8.0)
    given = parser.parse_args()
    allow_files(LORIS_CONNECTIONS * 2)
    chosen = [name for name in NAMES if not given.names or any(part in name for part in given.names)]
    print("| attack, as fast as it goes | alone, p99 ms | beside it | ratio | memory, MiB | |")
    print("|---|---:|---:|---:|---:|---|")
    costs: dict[str, float] = {}
    fell_short = 0
    for number, name in enumerate(chosen, 1):
        print(f"{number} of {len(chosen)}: {name}", file=sys.stderr)
        alone, beside, growth = measure(name, given.seconds)
        costs[name] = beside / alone
        verdict = judged(name, costs, growth)
        fell_short += verdict.startswith("missed")
        figures = f"{alone:.2f} | {beside:.2f} | {costs[name]:.2f} | {growth / MIB:.1f}"
        print(f"| {name} | {figures} | {verdict} |", flush=True)
    return 1 if fell_short else 0


def judged(name: str, costs: dict[str, float], growth: int) -> str:
    if growth >= ALLOWED_GROWTH:
        return "missed: memory"
    if name in CONTROLS:
        return "control"
    if costs[name] <= AIMED_RATIO:
        return ""
    control = costs.get(SERVED.get(name, ""), 0.0)
    if costs[name] <= control * _SPREAD:
        return "no worse than its control"
    return "missed"


if __name__ == "__main__":
    sys.exit(main())
