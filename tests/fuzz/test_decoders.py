"""Every decoder against its corpus and against damage to it: the same inputs in every run, on any machine.

`make fuzz` goes on from here, guided by coverage and for as long as one likes.
"""

import time
import tracemalloc
import zlib

import pytest

from tests.fuzz import corpus
from tests.fuzz.mutations import Mutator
from tests.fuzz.target import Target, all_targets

EXECUTIONS = 600
SLOWEST_SECONDS = 2.0
MOST_MEMORY = 32 * 1024 * 1024
CORPUS_BYTES = 1024 * 1024

targets = pytest.mark.parametrize("target", all_targets().values(), ids=lambda target: target.name)


def check(target: Target, data: bytes) -> None:
    begun = time.process_time()
    try:
        target.run(data)
    except Exception as error:
        error.add_note(f"target {target.name}, input {data.hex()}")
        raise
    spent = time.process_time() - begun
    assert spent < SLOWEST_SECONDS, f"target {target.name} took {spent:.1f} s for {data.hex()}"


@targets
def test_what_is_in_the_corpus(target: Target) -> None:
    inputs = corpus.inputs(target)
    assert inputs
    tracemalloc.start()
    try:
        for data in inputs:
            check(target, data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MOST_MEMORY


@targets
def test_damaged_inputs(target: Target) -> None:
    seed = zlib.crc32(target.name.encode())
    mutator = Mutator(corpus.inputs(target), target.dictionary, target.longest, seed)
    for data in mutator.take(EXECUTIONS):
        check(target, data)


@targets
def test_seeds_are_valid_and_in_the_corpus(target: Target) -> None:
    known = set(corpus.inputs(target))
    assert {seed for seed in target.seeds() if len(seed) <= corpus.LARGEST_SEED} <= known


def test_the_corpus_is_small_and_nothing_in_it_is_forgotten() -> None:
    files = [path for path in corpus.CORPUS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < CORPUS_BYTES
    assert {path.parent.name for path in files} == set(all_targets())
