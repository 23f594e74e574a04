"""Checks of half messages, before their time."""

from posthouse.broker.half_messages.half_messages import HalfMessages


def make_due(half_messages: HalfMessages) -> None:
    """All that is undecided is asked about by the next `check`."""
    for id, known in half_messages._undecided.items():
        half_messages._checks._put(id, known, 0.0)
