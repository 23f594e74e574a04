"""Consumers as RocketMQ's push consumers are: they divide the queues of their group among its members, store
how far they have come, and send back what they could not process, to get it again later."""

import asyncio
from random import Random
from typing import Final

from posthouse.protocols.rocketmq.codec.stored_messages import StoredMessage
from tests.checker.history import Ack, Bury, Deliver, Lease, Outcome
from tests.torture.brokers import Addresses
from tests.torture.recording import Recorder
from tests.torture.rocket.groups import Group
from tests.torture.rocket.link import DEAD, NotStored, RocketLink
from tests.torture.rocket.readers import Reader
from tests.torture.stream.links import decode_value
from tests.torture.workloads import RETRY_SECONDS

_AT_ONCE: Final = 8
_COMMIT_CHANCE: Final = 0.3
"""Clients commit every five seconds."""
_PAUSE_SECONDS: Final = 0.01
_BEAT_TURNS: Final = 500
_ONE_SECOND: Final = 1
"""The delay level."""
_POISON: Final = 11
"""Each message with a number of this kind is sent back until the broker gives it up."""


class Pusher:
    def __init__(self, recorder: Recorder, random: Random, group: Group, *, retries: bool) -> None:
        """Without `retries` nothing is sent back but dead letters: nobody knows when it would come."""
        self._recorder = recorder
        self._random = random
        self._group = group
        self._retries = retries
        self._process = recorder.process()
        self._client = f"pusher-{self._process}"
        self._reader = Reader(recorder, group.name)

    async def live(self, addresses: Addresses) -> None:
        async with RocketLink(addresses) as link:
            self._reader.assign({})
            turn = 0
            while True:
                try:
                    if turn % _BEAT_TURNS == 0:
                        await self._join(link)
                    turn += 1
                    await self._turn(link)
                except NotStored:
                    self._reader.assign({})  # what was not processed comes again
                    self._recorder.refused()
                    turn = 0
                    await asyncio.sleep(RETRY_SECONDS)
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _join(self, link: RocketLink) -> None:
        await link.heartbeat(self._group.heartbeat(self._client))
        await self._divide(link)

    async def _divide(self, link: RocketLink) -> None:
        link.pushed.clear()
        members = sorted(await link.members(self._group.name))
        places = [*self._group.places, self._group.retries]
        await self._reader.take(link, places[members.index(self._client) :: len(members)])

    async def _turn(self, link: RocketLink) -> None:
        if link.pushed:  # the members have changed
            await self._divide(link)
        for place in self._reader.positions:
            for message in await self._reader.pull(link, place, _AT_ONCE):
                await self._process_one(link, message)
            if self._random.random() < _COMMIT_CHANCE:
                await self._reader.commit(link, place)
        if self._random.random() < 0.01:
            await link.leave(self._client, self._group.name)
            await self._join(link)

    async def _process_one(self, link: RocketLink, message: StoredMessage) -> None:
        value = decode_value(message.body)
        self._note_delivery(value, message)
        chance = self._random.random()
        if chance < 0.02 or (value % _POISON == 0 and not self._retries):
            await self._bury(link, value, message)
        elif self._retries and (value % _POISON == 0 or chance < 0.1):
            await self._send_back(link, value, message)
        else:
            now = self._recorder.now()
            # Unknown: it may come again until the offset behind it is stored, or as a copy sent back before.
            self._recorder.add(Ack(self._process, now, now, self._group.queue, value, Outcome.UNKNOWN))

    def _note_delivery(self, value: int, message: StoredMessage) -> None:
        """When queues are divided anew, their messages may come again, and look like new ones."""
        now, queue = self._recorder.now(), self._group.queue
        if value in self._group.delivered and not message.reconsume_times:
            self._recorder.add(Deliver(self._process, now, queue, value, True))
            return
        self._group.delivered.add(value)
        place, attempt = (message.topic, message.queue), message.reconsume_times + 1
        self._recorder.add(
            Lease(self._process, now, now, queue, value, place, message.queue_offset, None, attempt, 0)
        )

    async def _send_back(self, link: RocketLink, value: int, message: StoredMessage) -> None:
        most = self._group.most_retries
        await link.send_back(self._group.name, message, level=_ONE_SECOND, most_retries=most)
        if message.reconsume_times < most:
            self._group.returning.add((value, message.reconsume_times + 1))
        self._recorder.moved()

    async def _bury(self, link: RocketLink, value: int, message: StoredMessage) -> None:
        invoked, queue = self._recorder.now(), self._group.queue
        try:
            await link.send_back(self._group.name, message, level=DEAD, most_retries=self._group.most_retries)
            self._group.buried.add(value)
        finally:
            now = self._recorder.now()
            self._recorder.add(Bury(self._process, invoked, now, queue, value, Outcome.UNKNOWN))
        self._recorder.moved()
