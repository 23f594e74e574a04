"""Members of a group: they join, share partitions out, read, commit, and leave, mostly without a word."""

import asyncio
from random import Random

from posthouse.protocols.kafka.errors import ErrorCode
from tests.checker.history import CommitOffset, Outcome, Partition
from tests.simulation.consuming import Consumer
from tests.simulation.group_client import GroupClient, Joined, is_over
from tests.simulation.kafka_client import KafkaClient, Refused
from tests.simulation.kafka_wire import Lost
from tests.simulation.ownership import Commit, Ownership
from tests.simulation.producing import PAUSE
from tests.simulation.recorder import Recorder

GROUP = "members"
SESSIONS_MS = (1000, 1000, 2000)
LEAVES = 0.05
"""How likely it is, after each poll, that a member leaves and another takes its place."""
NAPS = 0.2
"""How likely it is that it does nothing for longer than its session lasts, and goes on as if nothing was."""


class Member:
    """One member after the other, in the same place."""

    def __init__(
        self,
        recorder: Recorder,
        client: KafkaClient,
        random: Random,
        partitions: list[Partition],
        ownership: Ownership,
    ) -> None:
        self.recorder = recorder
        self.random = random
        self.client = client
        self._all = partitions
        self._ownership = ownership
        self._group = GroupClient(client, GROUP)
        self._session_ms = random.choice(SESSIONS_MS)
        self._id = ""
        self._consumer = Consumer(recorder, client, random, [], committed_only=False, group=GROUP)

    async def live(self) -> None:
        """One generation. Raises Refused when it is over, Lost where nobody knows."""
        joined = await self._join()
        while not self.recorder.is_over:
            if self._consumer.positions:
                await self._consumer.poll()
                if self.random.random() < 0.5:
                    await self._commit(joined)
            await self._group.heartbeat(joined)
            chance = self.random.random()
            if chance < LEAVES:
                await self._leave()
                return
            if chance < LEAVES + NAPS:
                await asyncio.sleep(self._session_ms / 1000 + PAUSE)
            await asyncio.sleep(PAUSE * 3 * self.random.random())

    async def _join(self) -> Joined:
        invoked = self.recorder.now
        joined = await self._group.join(self._id, self._session_ms)
        self._ownership.joined(joined, invoked, self.recorder.now)
        self._id = joined.member
        partitions = await self._group.sync(joined, self._shares(joined))
        self._ownership.owns(joined, partitions)
        self._consumer.partitions = partitions
        self._consumer.positions = {}
        if partitions:
            await self._consumer.assign()
        return joined

    def _shares(self, joined: Joined) -> dict[str, list[Partition]]:
        """Everybody gets some, if there are enough, and not the same as last time."""
        if joined.leader != joined.member:
            return {}
        members = self.random.sample(joined.members, len(joined.members))
        return {member: self._all[number :: len(members)] for number, member in enumerate(members)}

    async def _commit(self, joined: Joined) -> None:
        offsets = dict(self._consumer.positions)
        invoked = self.recorder.now
        outcome = Outcome.UNKNOWN
        try:
            await self._group.commit(joined, offsets)
            outcome = Outcome.OK
        except Refused as refused:
            if is_over(refused):
                outcome = Outcome.FAILED
            raise
        finally:
            now = self.recorder.now
            for partition, offset in offsets.items():
                self.recorder.history.append(
                    CommitOffset(self._consumer.process, invoked, now, GROUP, partition, offset, outcome)
                )
                if outcome is Outcome.OK:
                    self._ownership.commits.append(Commit(joined, partition, offset, invoked, now))

    async def _leave(self) -> None:
        if self.random.random() < 0.5:
            await self._group.leave(self._id)
        else:
            self.client.disconnect()
        self._id = ""

    def refused(self, error: Refused) -> None:
        if error.code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._id = ""


async def take_part(member: Member) -> None:
    while not member.recorder.is_over:
        try:
            await member.live()
        except Refused as error:
            member.refused(error)
        except Lost:
            pass  # it may come again, and is still the same
        await asyncio.sleep(PAUSE * member.random.random())
    member.client.disconnect()
