"""The committed corpus: one directory a target, a file for each input, named by its digest."""

import hashlib
from pathlib import Path

from tests.fuzz.target import Target

CORPUS = Path(__file__).parent / "corpus"
LARGEST_SEED = 1500
"""Bytes: the corpus is to stay small, and short inputs are the ones that a fuzzer gets somewhere with."""


def directory(target: Target) -> Path:
    return CORPUS / target.name


def inputs(target: Target) -> list[bytes]:
    return [path.read_bytes() for path in sorted(directory(target).iterdir())]


def add(target: Target, data: bytes) -> None:
    path = directory(target) / hashlib.sha256(data).hexdigest()[:16]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def add_seeds(target: Target) -> int:
    """What the seeds have that the corpus has not; inputs that were found by fuzzing stay."""
    before = len(list(directory(target).glob("*")))
    for seed in target.seeds():
        if len(seed) <= LARGEST_SEED:
            add(target, seed)
    return len(list(directory(target).glob("*"))) - before
