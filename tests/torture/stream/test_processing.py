"""What a processor says of final reads that do not fit."""

from random import Random

import pytest

from tests.checker.history import FinalRead
from tests.torture.recording import Recorder
from tests.torture.stream.links import Topics
from tests.torture.stream.processing import INPUT, OUTPUT, NotExactlyOnce, Processor


def _checked(outputs: list[int], progress: int) -> None:
    """The records at 0, 1 and 2 of the input were made into 10, 11 and 12, and that at 1 into 21, too."""
    recorder = Recorder()
    processor = Processor(recorder, Topics({}, {}), Random(1), "processor")
    processor._made_of = {10: 0, 11: 1, 21: 1, 12: 2}
    processor._progress = {INPUT: progress}
    recorder.add(FinalRead(INPUT, True, 0, 3, [(0, 1), (1, 2), (2, 3)]))
    recorder.add(FinalRead(OUTPUT, True, 0, 9, list(enumerate(outputs))))
    processor.check(recorder.history)


def test_what_is_right() -> None:
    _checked([10, 11], 2)
    _checked([10, 21, 99, 12], 3)


@pytest.mark.parametrize(
    ("outputs", "progress", "found"),
    [([10, 11, 21], 2, r"\[1\] twice, and \[\] never"), ([10, 12], 3, r"\[\] twice, and \[1\] never")],
)
def test_what_is_wrong(outputs: list[int], progress: int, found: str) -> None:
    with pytest.raises(NotExactlyOnce, match=found):
        _checked(outputs, progress)
