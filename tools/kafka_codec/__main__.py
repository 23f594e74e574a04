"""python -m tools.kafka_codec [--check]"""

import argparse
import sys
from pathlib import Path

from tools.kafka_codec.module import write_all

OUTPUT = Path(__file__).parents[2] / "src/posthouse/protocols/kafka/codec/generated"


def stale_files(output: Path = OUTPUT) -> list[str]:
    """Names of output files that differ from what the generator writes now, or that it no longer writes."""
    files = write_all()
    present = {path.name: path.read_text() for path in output.glob("*.py") if path.name != "__init__.py"}
    return sorted(name for name in files.keys() | present.keys() if files.get(name) != present.get(name))


def rewrite(output: Path = OUTPUT) -> list[str]:
    stale = stale_files(output)
    files = write_all()
    for name in stale:
        if name in files:
            (output / name).write_text(files[name])
        else:
            (output / name).unlink()
    return stale


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.kafka_codec", description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 when the output is stale")
    if parser.parse_args().check:
        stale = stale_files()
        print("\n".join(f"stale: {name}" for name in stale) or "up to date")
        return 1 if stale else 0
    changed = rewrite()
    print("\n".join(f"wrote {name}" for name in changed) or "up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main())
