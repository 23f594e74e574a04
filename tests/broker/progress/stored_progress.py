"""Progress as storage keeps it: entries that are put, and read again."""

from posthouse.broker.progress.progress import Progress, lane_of
from posthouse.storage.operations import Put

QUEUE = b"q" * 16
LANE = 3


def keep(state: dict[bytes, bytes], puts: list[Put]) -> None:
    for put in puts:
        if put.value is None:
            state.pop(put.key, None)
        else:
            state[put.key] = put.value


def reloaded(state: dict[bytes, bytes]) -> Progress:
    progress = Progress(QUEUE, LANE)
    for key, value in state.items():
        assert lane_of(key) == (QUEUE, LANE)
        progress.load(key, value)
    progress.loaded(0)
    return progress
