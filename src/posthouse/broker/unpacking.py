"""Batches that must be decompressed before they are appended: for compacted topics, and for topics that store
everything in one codec.

A megabyte may become twenty, and a few bytes sixteen megabytes, so this runs on a thread. There is one:
however many such batches arrive, one of them is in memory at a time. The thread keeps their order. While
batches of a topic are pending, all others of that topic take the same way, so that batches do not overtake
each other.
"""

import asyncio
import os
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from posthouse.broker.appending import Produced
from posthouse.model.errors import PosthouseError, RecordTooLarge
from posthouse.model.ids import TopicId
from posthouse.model.memory import trim_heap
from posthouse.model.topic_config import CompressionType
from posthouse.records.batch import ATTRIBUTES_AT, CODEC_MASK
from posthouse.records.stored_form import opened

_AS_IT_IS = CompressionType.PRODUCER
_NICENESS = 10
_QUICK = 512
"""An uncompressed batch up to this size is decoded on the event loop."""


class Unpacking:
    """Owned by the event loop."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "posthouse-unpacking", initializer=_be_nice)
        self._under_way: Counter[TopicId] = Counter()

    def is_needed(self, batches: Sequence[Produced]) -> bool:
        # A loop with the common case first: this runs for every produce request.
        for produced in batches:
            config = produced.topic.config
            if config.compression_type is not _AS_IT_IS or config.is_compacted:
                if _takes_long(produced.batch) or produced.topic.id in self._under_way:
                    return True
            elif self._under_way and produced.topic.id in self._under_way:
                return True
        return False

    async def open(self, batches: Sequence[Produced]) -> None:
        """On return each batch is decoded, or has the error for which it must not be appended."""
        for produced in batches:
            self._under_way[produced.topic.id] += 1
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, _open_all, batches)
        finally:
            for produced in batches:
                self._under_way[produced.topic.id] -= 1
            self._under_way = +self._under_way  # removes zero counts

    def close(self) -> None:
        self._thread.shutdown()


def _be_nice() -> None:
    """Lower the priority of this thread, if the system supports it, in favour of clients without
    unpacking."""
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
            # The traceback would keep the decompressed data alive.
            produced.opened = error.with_traceback(None)
            if isinstance(error, RecordTooLarge):
                trim_heap()
