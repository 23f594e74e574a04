"""Batches that have to be opened before they are appended: for topics that keep the latest of each key, and
for those that store everything in one codec.

A megabyte may become twenty, and a few bytes sixteen, so this is work for a thread. There is one: however
many such batches come, one of them is open at a time. It opens them in the order of their coming, and while
some of a topic are on their way, whatever else comes for it goes the same way: batches do not overtake each
other.
"""

import asyncio
import os
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from posthouse.broker.appending import Produced, opened
from posthouse.model.errors import PosthouseError, RecordTooLarge
from posthouse.model.ids import TopicId
from posthouse.model.memory import give_back
from posthouse.model.topic_config import CompressionType
from posthouse.records.batch import ATTRIBUTES_AT, CODEC_MASK

_AS_IT_IS = CompressionType.PRODUCER
_NICENESS = 10
_QUICK = 512
"""A batch of so many bytes is opened where it is, if it is not compressed."""


class Unpacking:
    """Owned by the event loop."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "posthouse-unpacking", initializer=_be_nice)
        self._under_way: Counter[TopicId] = Counter()

    def is_needed(self, batches: Sequence[Produced]) -> bool:
        # A loop, and the usual answer first: this is asked of every produce request.
        for produced in batches:
            config = produced.topic.config
            if config.compression_type is not _AS_IT_IS or config.is_compacted:
                if _takes_long(produced.batch) or produced.topic.id in self._under_way:
                    return True
            elif self._under_way and produced.topic.id in self._under_way:
                return True
        return False

    async def open(self, batches: Sequence[Produced]) -> None:
        """Afterwards each of them is opened, or it is known why it must not be appended."""
        for produced in batches:
            self._under_way[produced.topic.id] += 1
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, _open_all, batches)
        finally:
            for produced in batches:
                self._under_way[produced.topic.id] -= 1
            self._under_way = +self._under_way  # without those of which there are none

    def close(self) -> None:
        self._thread.shutdown()


def _be_nice() -> None:
    """Where a thread may have a priority of its own: whoever needs no unpacking goes first."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)


def _takes_long(batch: memoryview) -> bool:
    return len(batch) > _QUICK or (
        len(batch) > ATTRIBUTES_AT + 1 and batch[ATTRIBUTES_AT + 1] & CODEC_MASK != 0
    )


def _open_all(batches: Sequence[Produced]) -> None:
    for produced in batches:
        try:
            produced.opened = opened(produced.batch, produced.topic.config)
        except PosthouseError as error:
            # Its traceback holds what was unpacked so far.
            produced.opened = error.with_traceback(None)
            if isinstance(error, RecordTooLarge):
                give_back()
