"""`python -m tests.torture.bank`: the bank of the examples, killed by the round. See docs/reliability.md."""

import argparse
import datetime
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.directories import IN_MEMORY
from tests.torture.bank.controls import CONTROLS, ROUNDS
from tests.torture.bank.rounds import Outcome, run_rounds
from tests.torture.report import Figures, Run, around, write
from tools.checkout import commit

KIND: Final = "bank-kill"
_FAILURES: Final = Path(".torture")
_ROUNDS_OF_A_BANK: Final = 50
"""Then another one is opened."""
_CONTROL_SEED: Final = 1


def main(arguments: Sequence[str] = tuple(sys.argv[1:])) -> int:
    options = _parser().parse_args(arguments)
    command = f"make torture-bank ROUNDS={options.rounds} SEED={options.seed}"
    run = Run(command, datetime.datetime.now(tz=datetime.UTC).date().isoformat(), commit(), {})
    figures = run.of(KIND)
    figures.control = _try_controls()
    if options.controls:
        return 0 if figures.control else 1
    try:
        _rounds(options.rounds, options.seed, figures)
    finally:
        if options.report and figures.rounds:
            write(run, options.report)
    return 0 if figures.is_good else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.torture.bank", description=__doc__)
    parser.add_argument("--rounds", type=int, default=500, help="how many (500)")
    parser.add_argument("--seed", type=int, default=1, help="of customers and kills (1)")
    parser.add_argument("--controls", action="store_true", help="only the banks that break a promise")
    parser.add_argument("--report", type=_page, help="the page whose table is brought up to date")
    return parser


def _page(text: str) -> Path:
    """Looked at before an hour is spent on figures for it."""
    try:
        around(Path(text))
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return Path(text)


def _try_controls() -> str:
    """What was found; empty if one of them was missed."""
    found = []
    for control in CONTROLS:
        place = _place()
        try:
            outcome, is_caught = control.tried(place, _CONTROL_SEED)
        finally:
            shutil.rmtree(place)
        if is_caught:
            found.append(control.name)
            text = next(each for each in outcome.anomalies if control.finding in each)
            _say(f"control {control.name!r} caught in round {outcome.rounds}: {text}")
        else:
            _say(f"control {control.name!r} MISSED in {ROUNDS} rounds")
            _keep(outcome, f"control-{control.name.replace(' ', '-')}")
    return ", ".join(found) if len(found) == len(CONTROLS) else ""


def _rounds(rounds: int, seed: int, figures: Figures) -> None:
    number = 0
    while figures.rounds < rounds:
        place = _place()
        bank_seed = seed * 1_000_000 + number
        try:
            outcome = run_rounds(
                place, rounds=min(_ROUNDS_OF_A_BANK, rounds - figures.rounds), seed=bank_seed
            )
        finally:
            shutil.rmtree(place)
        number += 1
        figures.campaigns += 1
        figures.rounds += outcome.rounds
        figures.operations += outcome.transfers
        figures.faults += outcome.kills.total()
        figures.anomalies += len(outcome.anomalies)
        figures.seconds += outcome.seconds
        kills = ", ".join(f"{target} {count}" for target, count in sorted(outcome.kills.items()))
        _say(
            f"{figures.rounds:,} rounds, {figures.operations:,} transfers, {figures.anomalies:,} anomalies, "
            f"{figures.seconds:.0f} s; killed in the last {outcome.rounds}: {kills}"
        )
        if outcome.anomalies:
            _keep(outcome, f"bank-{bank_seed}")


def _place() -> Path:
    return Path(tempfile.mkdtemp(dir=IN_MEMORY, prefix="posthouse-bank-"))


def _keep(outcome: Outcome, name: str) -> None:
    place = _FAILURES / name
    place.mkdir(parents=True, exist_ok=True)
    (place / "anomalies.txt").write_text("\n".join(outcome.anomalies), encoding="utf-8")
    for file, text in outcome.logs.items():
        (place / file).write_text(text, encoding="utf-8")
    _say(f"see {place}: {outcome.anomalies[:5]}")


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    # Whoever ends it early gets a report of what was done, and leaves no server behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main())
