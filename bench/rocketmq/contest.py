"""Peers that do the same work take turns, round by round, each round starting with another one."""

from collections.abc import Callable, Sequence
from pathlib import Path

from bench.rocketmq.figures import Row
from bench.rocketmq.loads import Loads
from bench.rocketmq.peers import Failed, Peer
from bench.rocketmq.plan import Plan
from bench.rocketmq.scenarios import ONCE, SCENARIOS, Run


class Contest:
    """Rows by section and name, in the order in which they were first measured."""

    def __init__(self, plan: Plan, peers: Sequence[Peer], jars: Path, loads: Loads) -> None:
        self._plan = plan
        self._peers = peers
        self._jars = jars
        self._loads = loads
        self._rows: dict[tuple[str, str], Row] = {}
        self.failures: list[str] = []

    @property
    def rows(self) -> list[Row]:
        sections = list(dict.fromkeys(row.section for row in self._rows.values()))
        return sorted(self._rows.values(), key=lambda row: sections.index(row.section))

    def run(self, scenario: str, say: Callable[[str], None]) -> None:
        rounds = 1 if scenario in ONCE else self._plan.rounds
        for number in range(rounds):
            first = number % len(self._peers)
            for peer in (*self._peers[first:], *self._peers[:first]):
                say(f"{scenario}, round {number + 1} of {rounds}: {peer.name}")
                try:
                    self._measure(scenario, peer, say)
                except (Failed, OSError) as error:
                    failure = f"{peer.name}, {scenario}, round {number + 1}: {' '.join(str(error).split())}"
                    self.failures.append(failure)
                    say(f"  {failure}")

    def _measure(self, scenario: str, peer: Peer, say: Callable[[str], None]) -> None:
        """The round counts as a whole: otherwise ratios would be of different rounds."""
        found: list[tuple[Row, float]] = []

        def record(row: Row, value: float) -> None:
            say(f"  {row.name}: {value:,.1f} {row.unit}")
            found.append((row, value))

        with peer.start(self._jars) as served:
            SCENARIOS[scenario](Run(plan=self._plan, served=served, loads=self._loads, record=record))
        for row, value in found:
            kept = self._rows.setdefault((row.section, row.name), row)
            kept.rounds.setdefault(peer.name, []).append(value)
