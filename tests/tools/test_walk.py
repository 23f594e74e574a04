"""The walk of an AMQP message stays short."""

from tools.walk import traced_message

MOST_FILES = 31
"""Of the front end and the broker, from publish to acknowledgement."""


def test_a_message_passes_through_few_files() -> None:
    trace = traced_message()
    files = [*trace.files("front end"), *trace.files("broker")]
    files = [each for each in files if each != "protocols/loop_delay.py"]  # a timer beside the walk
    assert files[0] == "protocols/amqp/connection.py"
    assert {"broker/queues/wave.py", "broker/queues/dispatcher.py", "broker/progress/settling.py"} <= {*files}
    assert len(files) <= MOST_FILES, files
