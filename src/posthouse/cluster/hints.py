"""Hints between brokers of a cluster: one connection for each pair, which the one with the lower id dials.

Brokers tell each other how far their commits have moved logs, and what their clients use of limits.

Nothing depends on them. A broker that hears no hints asks the database for the ends of logs, and applies
limits to its own clients.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from posthouse.cluster.attaching import attach
from posthouse.cluster.hint_link import HintLink
from posthouse.cluster.peer_connection import NOT_CONNECTED, connect
from posthouse.cluster.preamble import HintPassage
from posthouse.model.address import Address
from posthouse.model.clock import Clock
from posthouse.model.usage import ToldUse
from posthouse.protocols.peer_traffic import PeerTraffic
from posthouse.storage.log_news import Grown, LogNews

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.5
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HintPeer:
    """A live broker."""

    id: int
    incarnation: UUID
    address: Address
    """Of its peer listener."""


class _Attempts:
    """To reach one broker, with a pause that doubles."""

    __slots__ = ("next_at", "pause")

    def __init__(self) -> None:
        self.next_at = 0.0
        self.pause = _FIRST_PAUSE_SECONDS


class Hints:
    """Of one broker, for as long as it has one storage. Owned by the event loop."""

    def __init__(
        self,
        own: HintPeer,
        secret: bytes,
        peers: Callable[[], Sequence[HintPeer]],
        hinted: Grown,
        *,
        report: Callable[[], Sequence[ToldUse]],
        told: Callable[[UUID, Sequence[ToldUse] | None], None],
        clock: Clock,
        traffic: PeerTraffic,
    ) -> None:
        """`peers` are the live brokers, this one may be among them. `hinted` is told the hints of others.
        `report` is what clients of this broker use of limits. `told` is called with the reports of others,
        and with None when the connection with one is lost."""
        self._own = own
        self._secret = secret
        self._peers = peers
        self._hinted = hinted
        self._report = report
        self._told = told
        self._clock = clock
        self._traffic = traffic
        self._links: dict[UUID, HintLink] = {}
        self._attempts: dict[UUID, _Attempts] = {}
        self._connecting: dict[UUID, asyncio.Task[None]] = {}
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._looking = asyncio.get_running_loop().create_task(self._look())

    def tell(self, hints: Sequence[LogNews]) -> None:
        """Tell all others what commits of this broker have moved."""
        for link in self._links.values():
            link.tell(hints)

    def _tell_usage(self) -> None:
        if self._links:
            report = self._report()
            for link in self._links.values():
                link.tell_usage(report)

    def adopt(self, accepted: socket.socket, passage: HintPassage) -> None:
        """The other broker has dialled."""
        self._begin(passage.broker, self._serve(accepted, passage.broker))

    async def stop(self) -> None:
        tasks = [*self._connecting.values()]
        if self._looking is not None:
            tasks.append(self._looking)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for link in list(self._links.values()):
            link.close()

    async def _look(self) -> None:
        while True:
            live = {each.incarnation: each for each in self._peers() if each.id != self._own.id}
            for incarnation in [each for each in self._links if each not in live]:
                self._links[incarnation].close()
            for incarnation in [each for each in self._attempts if each not in live]:
                del self._attempts[incarnation]
            for peer in live.values():
                self._connect_if_due(peer)
            self._tell_usage()
            await asyncio.sleep(_LOOK_SECONDS)

    def _connect_if_due(self, peer: HintPeer) -> None:
        incarnation = peer.incarnation
        if peer.id < self._own.id or incarnation in self._links or incarnation in self._connecting:
            return
        attempts = self._attempts.setdefault(incarnation, _Attempts())
        now = asyncio.get_running_loop().time()
        if now >= attempts.next_at:
            attempts.next_at = now + attempts.pause
            attempts.pause = min(attempts.pause * 2, _LONGEST_PAUSE_SECONDS)
            self._begin(incarnation, self._dial(peer))

    def _begin(self, peer: UUID, connecting: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(connecting)
        self._connecting[peer] = task
        task.add_done_callback(partial(self._connected, peer))

    def _connected(self, peer: UUID, task: "asyncio.Task[None]") -> None:
        if self._connecting.get(peer) is task:
            del self._connecting[peer]
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, NOT_CONNECTED):
            why = str(error) or type(error).__name__
            log.info("no connection for hints with broker %s: %s", peer, why)
        else:
            log.error("no connection for hints with broker %s", peer, exc_info=error)

    async def _dial(self, peer: HintPeer) -> None:
        dialled = await connect(peer.address, self._secret, HintPassage(broker=self._own.incarnation))
        await self._serve(dialled, peer.incarnation)

    async def _serve(self, connected: socket.socket, peer: UUID) -> None:
        link = self._link(peer)
        try:
            await attach(connected, lambda: link)
        except BaseException:
            self._lost(link)
            raise

    def _link(self, peer: UUID) -> HintLink:
        return HintLink(
            peer,
            self._clock,
            self._traffic,
            hinted=self._hinted,
            told=partial(self._told, peer),
            made=self._made,
            lost=self._lost,
        )

    def _made(self, link: HintLink) -> None:
        """A connection takes the place of an older one, which the other broker has lost."""
        before = self._links.pop(link.peer, None)
        if before is not None:
            before.close()
        self._links[link.peer] = link
        link.tell_usage(self._report())
        self._attempts.pop(link.peer, None)
        self._traffic.hint_links = len(self._links)

    def _lost(self, link: HintLink) -> None:
        if self._links.get(link.peer) is link:
            del self._links[link.peer]
            self._told(link.peer, None)
        self._traffic.hint_links = len(self._links)
