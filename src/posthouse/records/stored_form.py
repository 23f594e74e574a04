"""The form in which a produced batch is stored, and the checks before it is."""

from typing import NamedTuple

from posthouse.model.topic_config import CompressionType, TopicConfig
from posthouse.records.batch import BatchHeader, parse_header, validate_produced
from posthouse.records.recompression import STORED_CODEC, level_of, recompressed
from posthouse.records.spans import check_keys


class Opened(NamedTuple):
    """A batch in the form in which it is stored."""

    batch: memoryview
    header: BatchHeader


def opened(batch: memoryview, config: TopicConfig) -> Opened:
    """The batch in its stored form. Raises if the topic must not have it."""
    header = validate_produced(batch, max_bytes=config.max_message_bytes)
    if config.compression_type is not CompressionType.PRODUCER:
        codec = STORED_CODEC[config.compression_type]
        if header.codec is not codec:
            limit, level = config.max_message_bytes, level_of(config, codec)
            batch = memoryview(recompressed(batch, header, codec, max_bytes=limit, level=level))
            header = parse_header(batch)
    if config.is_compacted:
        check_keys(batch, header)
    return Opened(batch, header)
