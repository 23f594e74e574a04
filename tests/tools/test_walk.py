"""The walk of an AMQP message stays short."""

from tools.walk import traced_message

MOST_FILES = 20
"""Of the front end and the broker, from publish to acknowledgement."""
KNOWN = {"broker/queues/publishing.py", "broker/queues/dispatcher.py", "broker/progress/progress.py"}
"""Some that every message passes through: a walk without them was not traced."""


def walked() -> list[str]:
    trace = traced_message()
    return [*trace.files("front end"), *trace.files("broker")]


def test_a_message_passes_through_few_files() -> None:
    # On a busy machine a frame may arrive in pieces, or a timer may fall into the walk: the shortest counts.
    files = min((walked() for _ in range(5)), key=len)
    assert files[0] == "protocols/amqp/connection.py"
    assert {*files} >= KNOWN
    assert len(files) <= MOST_FILES, files
