"""`python -m tests.fuzz.guided TARGET SECONDS`: one target under atheris, guided by what code is reached."""

import sys
from pathlib import Path

import atheris  # type: ignore[import-untyped, import-not-found, unused-ignore]

from tests.fuzz import corpus
from tests.fuzz.target import all_targets

BUILD = Path("build/fuzz")
_MEGABYTES = 1024
_TIMEOUT_SECONDS = 10


def main(name: str, seconds: str) -> None:
    with atheris.instrument_imports(include=["posthouse"]):
        target = all_targets()[name]
    grown, found = BUILD / "corpus" / name, BUILD / "found" / name
    for directory in (grown, found):
        directory.mkdir(parents=True, exist_ok=True)
    options = [
        f"-max_total_time={seconds}",
        f"-max_len={target.longest}",
        f"-timeout={_TIMEOUT_SECONDS}",
        f"-rss_limit_mb={_MEGABYTES}",
        f"-artifact_prefix={found}/",
        "-print_final_stats=1",
    ]
    if target.dictionary:
        words = BUILD / f"{name}.dict"
        words.write_text("".join(f'"{_escaped(word)}"\n' for word in target.dictionary))
        options.append(f"-dict={words}")
    # New inputs go to the first directory; the committed ones are only read.
    atheris.Setup([sys.argv[0], *options, str(grown), str(corpus.directory(target))], target.run)
    atheris.Fuzz()


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


if __name__ == "__main__":
    main(*sys.argv[1:])
