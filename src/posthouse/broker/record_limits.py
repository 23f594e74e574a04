"""What is checked of a record before it shares a batch with others, which would be refused with it."""

from posthouse.model.errors import MissingKeys, RecordTooLarge
from posthouse.model.topics import Topic
from posthouse.records.batch import HEADER_SIZE

RECORD_OVERHEAD = 32
"""More than the lengths and deltas of one record take."""


def check_record(topic: Topic, key: bytes | None, value: bytes, headers: bytes) -> int:
    """The most bytes that it takes in a batch. Raises RecordTooLarge and MissingKeys."""
    size = len(value) + len(headers) + RECORD_OVERHEAD
    if key is not None:
        size += len(key)
    elif topic.config.is_compacted:
        raise MissingKeys([0])
    limit = topic.config.max_message_bytes
    if HEADER_SIZE + size > limit:
        raise RecordTooLarge(
            f"a batch of {HEADER_SIZE + size} bytes exceeds the limit of {limit} of topic {topic.name!r}"
        )
    return size
