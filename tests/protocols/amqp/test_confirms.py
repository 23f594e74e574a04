"""Which publishes are confirmed when, and by which frames."""

from collections.abc import Sequence
from typing import cast

import pytest
from pamqp import frame
from pamqp.commands import Basic

from posthouse.model.errors import StorageFull
from posthouse.protocols.amqp.acknowledgements import Confirms, ConfirmSpan, Part
from posthouse.protocols.flow_control import Outbox


class Frames:
    """In place of an outbox."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, int, bool]] = []

    def send(self, data: bytes) -> None:
        _, channel, method = frame.unmarshal(data)
        assert channel == 7
        assert isinstance(method, Basic.Ack | Basic.Nack)
        self.sent.append((method.name, method.delivery_tag, method.multiple))


class Joined:
    """In place of what a connection put into one wave."""

    def __init__(self) -> None:
        self.spans: list[ConfirmSpan] = []

    def end(self, error: StorageFull | None = None) -> None:
        for span in self.spans:
            span.end(error)


def publishes(script: str) -> tuple[Confirms, dict[str, Joined], Frames]:
    """A letter for each publish: the wave that it joins; - for a refused one, + for one that is done."""
    frames = Frames()
    confirms = Confirms(7, cast("Outbox", frames))
    waves: dict[str, Joined] = {}
    for letter in script:
        if letter == "-":
            confirms.refused()
        elif letter == "+":
            confirms.taken()
        else:
            confirms.joined(cast("Part", waves.setdefault(letter, Joined())))
    return confirms, waves, frames


ACK, NACK = "Basic.Ack", "Basic.Nack"


@pytest.mark.parametrize(
    ("script", "ends", "sent"),
    [
        ("a", "a", [(ACK, 1, False)]),
        ("aaa", "a", [(ACK, 3, True)]),
        ("aab", "ab", [(ACK, 2, True), (ACK, 3, False)]),
        # Held back: a frame for 3 and 4 would speak for 1 and 2, too.
        ("aabb", "b", []),
        ("aabb", "ba", [(ACK, 4, True)]),
        ("abc", "cba", [(ACK, 3, True)]),
        # Settled one by one, before the frame that would speak for them.
        ("a-a", "a", [(NACK, 2, False), (ACK, 3, True)]),
        ("-a", "a", [(NACK, 1, False), (ACK, 2, False)]),
        ("a-", "a", [(NACK, 2, False), (ACK, 1, False)]),
        ("aa+", "a", [(ACK, 3, False), (ACK, 2, True)]),
        ("--", "", [(NACK, 1, False), (NACK, 2, False)]),
    ],
)
def test_confirms(script: str, ends: str, sent: Sequence[tuple[str, int, bool]]) -> None:
    _, waves, frames = publishes(script)
    for wave in ends:
        waves[wave].end()
    assert frames.sent == list(sent)


@pytest.mark.parametrize(
    ("failing", "sent"),
    [
        ("a", [(NACK, 2, True), (ACK, 4, True), (ACK, 5, False)]),
        ("b", [(ACK, 2, True), (NACK, 4, True), (ACK, 5, False)]),
        ("c", [(ACK, 2, True), (ACK, 4, True), (NACK, 5, False)]),
    ],
)
def test_what_could_not_be_written_is_nacked_and_nothing_else(
    failing: str, sent: list[tuple[str, int, bool]]
) -> None:
    _, waves, frames = publishes("aabbc")
    for wave in "abc":
        waves[wave].end(StorageFull("no space") if wave == failing else None)
    assert frames.sent == sent


def test_a_failure_in_the_middle_of_what_was_held_back() -> None:
    _, waves, frames = publishes("aabbcc")
    waves["c"].end()
    waves["b"].end(StorageFull("no space"))
    assert frames.sent == []
    waves["a"].end()
    assert frames.sent == [(ACK, 2, True), (NACK, 4, True), (ACK, 6, True)]


def test_nothing_is_said_on_a_channel_that_is_closed() -> None:
    confirms, waves, frames = publishes("aab")
    confirms.close()
    waves["a"].end()
    waves["b"].end()
    assert frames.sent == []
