"""A processor: reads, makes one record of each, and moves its group's offset, all in one transaction."""

import asyncio
from collections import Counter
from random import Random

from tests.checker.history import FinalRead, History, Partition
from tests.protocols.kafka.wire import Wire
from tests.torture.recording import Recorder
from tests.torture.stream.links import Topics
from tests.torture.stream.readers import Fetching
from tests.torture.stream.transactions import TransactionalProducer
from tests.torture.workloads import RETRY_SECONDS

INPUT: Partition = ("orders", 0)
OUTPUT: Partition = ("derived", 0)


class NotExactlyOnce(Exception):
    """A record of the input has two records in the output, or none though the group is behind it."""


class Processor(TransactionalProducer):
    def __init__(self, recorder: Recorder, topics: Topics, random: Random, name: str) -> None:
        super().__init__(recorder, topics, random, name)
        self._made_of: dict[int, int] = {}
        """The offset in the input, by the value in the output."""

    async def _transaction(self, wire: Wire) -> None:
        fetching = Fetching(self._topics, {INPUT: self._progress.get(INPUT, 0)}, committed_only=True)
        records = (await fetching.fetch(wire))[: self._random.randint(1, 5)]
        if not records:
            self._progress[INPUT] = fetching.positions[INPUT]  # behind what was aborted
            await asyncio.sleep(RETRY_SECONDS)
            return
        number = self._recorder.transaction()
        values = []
        for _, offset, _ in records:
            values.append(self._recorder.value())
            self._made_of[values[-1]] = offset
        await self._send_values(wire, number, OUTPUT, values)
        await self._send_offset(number, INPUT, records[-1][1] + 1)
        await self._end(wire, number, commit=self._random.random() < 0.8)

    def check(self, history: History) -> None:
        """After the final reads, and after it has learned its progress. Raises NotExactlyOnce."""
        reads = [each for each in history if isinstance(each, FinalRead) and each.committed_only]
        final = {each.partition: each.records for each in reads}
        processed = Counter(self._made_of[value] for _, value in final[OUTPUT] if value in self._made_of)
        twice = [offset for offset, count in processed.items() if count > 1]
        progress = self._progress.get(INPUT, 0)
        never = [offset for offset, _ in final[INPUT] if offset < progress and offset not in processed]
        if twice or never:
            raise NotExactlyOnce(f"of {INPUT} it has processed {twice[:5]} twice, and {never[:5]} never")
