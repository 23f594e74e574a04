"""Asks brokers in which parts of ranges the records of a key or message id are."""

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial

from posthouse.client import Client
from posthouse.client.cluster import TopicInfo
from posthouse.client.errors import RequestRefused
from posthouse.client.key_places import NoKeyIndex
from posthouse.client.spans import Span
from posthouse.spark.access import access_of
from posthouse.spark.options import SourceOptions
from posthouse.spark.planning import OffsetRange

log = logging.getLogger(__name__)

_GAP = 1000
"""Offsets between two parts that are read rather than left out. A fetch takes about as long."""


def key_ranges(
    options: SourceOptions, ranges: Iterable[OffsetRange], topics: Mapping[str, TopicInfo]
) -> dict[OffsetRange, tuple[OffsetRange, ...]]:
    """The parts of each range, for topics with a key index. All records of the others have to be read."""
    name = options.name
    assert name is not None, "called for reads of a name"
    by_topic: dict[str, list[OffsetRange]] = defaultdict(list)
    for each in ranges:
        by_topic[each.place.topic].append(each)
    found: dict[OffsetRange, tuple[OffsetRange, ...]] = {}
    for topic, wanted in by_topic.items():
        asked = [(each.place.partition, Span(each.first, each.end)) for each in wanted]
        info = topics[topic]
        try:
            told = access_of(options).call(
                partial(Client.key_places, info=info, name=name, wanted=asked, gap=_GAP)
            )
        except (NoKeyIndex, RequestRefused) as error:
            log.warning("all records of topic %r are read to find those of a name: %s", topic, error)
            continue
        for each, spans in zip(wanted, told, strict=True):
            found[each] = tuple(OffsetRange(each.place, *span) for span in spans)
    return found
