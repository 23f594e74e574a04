"""Asks brokers where the records of ranges are in the object store."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from posthouse.client.errors import RequestRefused
from posthouse.client.manifests import AbortedTransaction, NoSegmentObjects, SegmentObject, WantedRange
from posthouse.spark.access import access_of
from posthouse.spark.options import SourceOptions
from posthouse.spark.planning import OffsetRange
from posthouse.spark.segments.stored_objects import open_store

log = logging.getLogger(__name__)

_ASK_AGAIN_SECONDS = 600.0

_without: dict[tuple[str, bool], float] = {}
"""Clusters without objects, and when they said so: a stream would ask at every trigger."""


class TopicRange(NamedTuple):
    range: OffsetRange
    topic_id: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeSegments:
    """The segments of a range, and the aborted transactions in them. Sent to executors."""

    hold: bytes | None
    segments: tuple[SegmentObject, ...]
    aborted: tuple[AbortedTransaction, ...]


def find_segments(
    options: SourceOptions, wanted: Sequence[TopicRange], *, hold: bytes | None = None
) -> list[RangeSegments | None]:
    """The segments of each range; None where there are none, or brokers do not tell. Raises WrongOption."""
    nothing: list[RangeSegments | None] = [None] * len(wanted)
    key = (options.bootstrap, options.object_store is None)
    if not options.reads_objects or not wanted:
        return nothing
    if options.object_store is not None:
        open_store(options.object_store)
    if time.monotonic() - _without.get(key, float("-inf")) < _ASK_AGAIN_SECONDS:
        return nothing
    asked = [WantedRange(topic_id, each.place.partition, each.first, each.end) for each, topic_id in wanted]
    try:
        manifest = access_of(options).call(
            lambda client: client.segment_manifest(
                asked, committed=options.is_committed, signed=options.object_store is None, hold=hold
            )
        )
    except NoSegmentObjects as error:
        _without[key] = time.monotonic()
        log.log(
            logging.DEBUG if options.object_store is None else logging.WARNING,
            "all records are read from brokers: %s",
            error,
        )
        return nothing
    except RequestRefused as error:
        log.warning("all records are read from brokers, though there may be objects: %s", error)
        return nothing
    return [
        RangeSegments(hold=manifest.hold, segments=found.segments, aborted=found.aborted)
        if found.segments
        else None
        for found in manifest.ranges
    ]
