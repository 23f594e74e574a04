"""Where a stream of records is: the next offset of each partition. As a text it is the id of an event.

TOPIC.PARTITION-OFFSET,PARTITION-OFFSET,…    TOPIC: the first 8 hex digits of the id of the topic
"""

import re
from collections.abc import Mapping
from typing import Final

from posthouse.model.topics import Topic
from posthouse.protocols.admin.problems import Problem

PATTERN: Final = r"^[0-9a-f]{8}\.[0-9]{1,10}-[0-9]{1,18}(,[0-9]{1,10}-[0-9]{1,18})*$"
_FORM: Final = re.compile(PATTERN + r"\Z")


def encode_places(topic: Topic, places: Mapping[int, int]) -> str:
    return f"{_mark(topic)}.{','.join(f'{partition}-{offset}' for partition, offset in places.items())}"


def decode_places(text: str, topic: Topic) -> dict[int, int]:
    """Raises Problem."""
    if not _FORM.match(text):
        raise Problem(400, f"{text[:100]!r} is no id of an event of this stream")
    mark, _, rest = text.partition(".")
    if mark != _mark(topic):
        raise Problem(409, f"the topic {topic.name!r} was deleted and created again: begin the stream anew")
    places: dict[int, int] = {}
    for place in rest.split(","):
        partition, _, offset = place.partition("-")
        if int(partition) >= topic.partitions or int(partition) in places:
            raise Problem(400, f"topic {topic.name!r} has no partition {partition}, or it is named twice")
        places[int(partition)] = int(offset)
    return places


def _mark(topic: Topic) -> str:
    return topic.id.hex()[:8]
