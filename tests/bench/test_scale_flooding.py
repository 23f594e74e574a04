"""A flood sends what is due, no more than its window allows, and ends with the broker."""

import socket
import threading

from bench.queues.workers import Tally
from bench.scale.flooding import Demand, Flooded, flood

PIECE = memoryview(b"x" * 1000)


def run(demand: Demand, under_way: int = 0, seconds: float = 0.3) -> tuple[Flooded, int]:
    """Against somebody who takes everything and answers nothing; what was taken."""
    ours, theirs = socket.socketpair()
    taken = 0

    def take() -> None:
        nonlocal taken
        while received := theirs.recv(65536):
            taken += len(received)

    taker = threading.Thread(target=take)
    taker.start()
    is_over = Tally()
    timer = threading.Timer(seconds, lambda: setattr(is_over, "value", 1))
    timer.start()
    flooded = flood(ours, demand, lambda: PIECE, len, lambda: under_way, is_over)
    ours.close()
    taker.join()
    theirs.close()
    return flooded, taken


def test_it_keeps_its_pace() -> None:
    flooded, taken = run(Demand(bytes_per_second=20_000))
    assert flooded.sent == taken
    assert 0 < taken <= 20_000 * flooded.seconds + len(PIECE)


def test_a_full_window_sends_nothing() -> None:
    flooded, taken = run(Demand(window=3), under_way=3)
    assert (flooded.sent, taken) == (0, 0)


def test_without_limits_it_sends_what_the_other_takes() -> None:
    flooded, taken = run(Demand())
    assert flooded.sent == taken > 100_000


def test_it_ends_when_the_other_one_is_gone() -> None:
    ours, theirs = socket.socketpair()
    theirs.send(b"answer")
    theirs.close()
    flooded = flood(ours, Demand(window=0), lambda: PIECE, len, lambda: 0, Tally())
    ours.close()
    assert flooded.answered == len(b"answer")
