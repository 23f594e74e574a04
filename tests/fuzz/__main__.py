"""`python -m tests.fuzz`: coverage-guided fuzzing of the decoders, with atheris.

Without a target all of them get their turn. What is found is written to build/fuzz; `--keep` adds an input to
the committed corpus, which is how a bug stays fixed.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from tests.fuzz import corpus
from tests.fuzz.target import Target, all_targets


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", help="names, or nothing for all: " + ", ".join(all_targets()))
    parser.add_argument("--minutes", type=float, default=1.0, help="for each target")
    parser.add_argument("--seeds", action="store_true", help="only write the seeds into the corpus")
    parser.add_argument("--keep", type=Path, help="only add this input to the corpus of the target")
    given = parser.parse_args()
    known = all_targets()
    if unknown := set(given.targets) - set(known):
        parser.error(f"no such target: {', '.join(sorted(unknown))}")
    chosen = [known[name] for name in given.targets] or list(known.values())
    if given.keep is not None:
        for target in chosen:
            corpus.add(target, given.keep.read_bytes())
        return 0
    if given.seeds:
        for target in chosen:
            print(f"{target.name}: {corpus.add_seeds(target)} new seeds")
        return 0
    failed = [target.name for target in chosen if not _run(target, given.minutes)]
    print(
        f"{len(chosen) - len(failed)} of {len(chosen)} targets held"
        + "".join(f"\n  {name}" for name in failed)
    )
    return 1 if failed else 0


def _run(target: Target, minutes: float) -> bool:
    """In a process of its own: whatever goes wrong there ends it."""
    print(f"{target.name}: {minutes:g} minutes", flush=True)
    command = [sys.executable, "-m", "tests.fuzz.guided", target.name, str(int(minutes * 60))]
    return subprocess.run(command, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
