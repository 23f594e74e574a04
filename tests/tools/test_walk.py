"""The walk of an AMQP message stays short."""

from tools.walk import traced_message

MOST_FILES = 30
"""Of the front end and the broker, from publish to acknowledgement."""


def test_a_message_passes_through_few_files() -> None:
    trace = traced_message()
    files = [*trace.files("front end"), *trace.files("broker")]
    assert files[0] == "protocols/amqp/connection.py"
    assert {"broker/queues/wave.py", "broker/queues/dispatcher.py", "broker/progress/settling.py"} <= {*files}
    assert len(files) <= MOST_FILES, files
