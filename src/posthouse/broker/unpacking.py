"""Decompresses batches before they are appended: for compacted topics, whose keys are checked, and for topics
with a codec of their own.

A megabyte may become twenty, so a thread does it. There is one thread, and one batch is decompressed at a
time, in the order of arrival. While it works on batches of a topic, all other batches of that topic wait
behind them: the order of batches is kept.
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
"""Uncompressed batches up to this many bytes are opened on the event loop."""


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
        """Set `opened` of each batch: to the opened batch, or to the reason why it must not be appended."""
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
    """Lower the priority of the thread, on Linux: other batches come first."""
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
