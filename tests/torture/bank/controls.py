"""Banks that break a promise on purpose. A judge that finds nothing there finds nothing ever."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.torture.bank import programs
from tests.torture.bank.arena import CREDITS, TELLER, Staff
from tests.torture.bank.rounds import Outcome, run_rounds

ROUNDS: Final = 20
_KILLS: Final = 6
"""In a round, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    name: str
    staff: Staff
    targets: Sequence[str]
    """What is killed: others would not strike where the promise is broken."""
    finding: str
    """Part of what the judge has to say."""

    def tried(self, place: Path, seed: int) -> tuple[Outcome, bool]:
        """Whether it was caught."""
        outcome = run_rounds(
            place,
            rounds=ROUNDS,
            seed=seed,
            staff=self.staff,
            targets=self.targets,
            most_kills=_KILLS,
        )
        return outcome, any(self.finding in each for each in outcome.anomalies)


CONTROLS: Final = (
    Control(
        name="publish after commit",
        staff=Staff(teller=programs.serve_and_publish_after_commit),
        targets=(TELLER,),
        finding="in the log",
    ),
    Control(
        name="no inbox",
        staff=Staff(credits=programs.consume_transfers_without_inbox),
        targets=(CREDITS,),
        finding="not applied once",
    ),
)
