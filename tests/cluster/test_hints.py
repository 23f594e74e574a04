"""Hints between brokers: both directions of one connection, lost and made again, and never more than fits."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from uuid import UUID, uuid4

import pytest
import uvloop

from posthouse.broker.cluster_usage import MOST_TOLD
from posthouse.cluster import hint_link
from posthouse.cluster.hint_link import HintLink
from posthouse.cluster.hints import HintPeer, Hints
from posthouse.cluster.peers import Adopt, PeerListener
from posthouse.cluster.preamble import AnyPassage, HintPassage, Refusal
from posthouse.model.address import Address
from posthouse.model.clock import SystemClock
from posthouse.model.usage import ToldUse
from posthouse.protocols.listening import ListeningSockets
from posthouse.protocols.peer_traffic import PeerTraffic
from posthouse.storage.log_news import LogNews
from tests.cluster.nodes import until

_SECRET = b"s" * 32


def _hint(log: int, end: int) -> LogNews:
    return LogNews(log=log, start=0, end=end, stable=end)


class _Broker:
    def __init__(self, number: int, live: list[HintPeer]) -> None:
        self._number = number
        self._live = live
        self.traffic = PeerTraffic()
        self.heard: list[LogNews] = []
        self.report: list[ToldUse] = []
        self.told: list[tuple[UUID, Sequence[ToldUse] | None]] = []

    async def start(self) -> None:
        listening = await ListeningSockets.bind(Address("127.0.0.1", 0))
        self.own = HintPeer(id=self._number, incarnation=uuid4(), address=listening.address)
        self._live.append(self.own)
        self.hints = Hints(
            self.own,
            _SECRET,
            lambda: self._live,
            self.heard.extend,
            report=lambda: self.report,
            told=lambda broker, report: self.told.append((broker, report)),
            clock=SystemClock(),
            traffic=self.traffic,
        )
        self._peers = PeerListener(listening, _SECRET, self._adopter)
        self._peers.start()
        self.hints.start()

    def _adopter(self, passage: AnyPassage) -> Adopt | Refusal:
        assert isinstance(passage, HintPassage)
        return partial(self.hints.adopt, passage=passage)

    async def stop(self) -> None:
        self._live.remove(self.own)
        await self._peers.close()
        await self.hints.stop()


@asynccontextmanager
async def _brokers(count: int) -> AsyncIterator[list[_Broker]]:
    live: list[HintPeer] = []
    async with AsyncExitStack() as stack:
        made = [_Broker(number, live) for number in range(1, count + 1)]
        for each in made:
            await each.start()
            stack.push_async_callback(each.stop)
        await until(lambda: all(each.traffic.hint_links == count - 1 for each in made))
        yield made


async def test_every_broker_hears_of_every_other() -> None:
    async with _brokers(3) as made:
        for number, each in enumerate(made):
            each.hints.tell([_hint(number, 7)])
        await until(lambda: all(len(each.heard) == 2 for each in made))
        for number, each in enumerate(made):
            assert sorted(hint.log for hint in each.heard) == [other for other in range(3) if other != number]
        assert [each.traffic.hints_sent for each in made] == [2, 2, 2]
        assert made[0].heard[0] == _hint(made[0].heard[0].log, 7)


async def test_a_lost_connection_is_made_again() -> None:
    async with _brokers(2) as (first, second):
        [link] = second.hints._links.values()
        link.close()
        await until(lambda: second.hints._links and link not in second.hints._links.values())
        await until(lambda: first.traffic.hint_links == 1)
        first.hints.tell([_hint(1, 5)])
        await until(lambda: second.heard == [_hint(1, 5)])


async def test_brokers_that_are_gone_are_left() -> None:
    async with _brokers(2) as (first, second):
        first._live.remove(second.own)
        await until(lambda: not first.traffic.hint_links)
        first._live.append(second.own)
        await until(lambda: first.traffic.hint_links and second.traffic.hint_links)


async def test_every_broker_is_told_what_clients_use_at_the_others() -> None:
    uses = [ToldUse(number.to_bytes(8), 2**40 + number, number % 2 == 0) for number in range(MOST_TOLD)]
    async with _brokers(3) as made:
        for number, each in enumerate(made):
            each.report = uses[: MOST_TOLD // 10**number]
        ids = [each.own.incarnation for each in made]
        for number, each in enumerate(made):
            others = {ids[other]: uses[: MOST_TOLD // 10**other] for other in range(3) if other != number}
            await until(lambda each=each, others=others: dict(each.told) == others)  # type: ignore[misc]
        made[0].report = []
        await until(lambda: all(dict(each.told)[ids[0]] == [] for each in made[1:]))


async def test_what_a_broker_has_told_is_forgotten_with_its_connection() -> None:
    async with _brokers(2) as (first, second):
        other = second.own.incarnation
        await until(lambda: first.told and first.told[-1] == (other, []))
        [link] = second.hints._links.values()
        link.close()
        await until(lambda: (other, None) in first.told)
        await until(lambda: first.told[-1] == (other, []))


def test_commits_that_end_during_a_stop_while_a_connection_is_made_tell_nobody() -> None:
    """With the event loop of a served broker: it forgets to tell a protocol that its transport is closed."""

    async def stop_while_a_connection_is_made() -> None:
        async with _brokers(1) as (first,):
            stopped: asyncio.Future[asyncio.Task[None]] = asyncio.get_running_loop().create_future()
            made = first.hints._made

            def made_and_stopped(link: HintLink) -> None:
                made(link)
                stopped.set_result(asyncio.create_task(first.hints.stop()))

            first.hints._made = made_and_stopped  # type: ignore[method-assign]
            second = _Broker(2, first._live)
            await second.start()
            stopping = await asyncio.wait_for(stopped, 30)
            while not stopping.done():
                first.hints.tell([_hint(1, 5)])
                await asyncio.sleep(0)
            first.hints.tell([_hint(1, 5)])
            assert first.traffic.hint_links == 0
            await second.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(stop_while_a_connection_is_made())


@asynccontextmanager
async def _link_to_a_socket() -> AsyncIterator[tuple[HintLink, socket.socket, list[LogNews], list[HintLink]]]:
    heard: list[LogNews] = []
    lost: list[HintLink] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ours = socket.create_connection(listening.getsockname())
        theirs, _ = listening.accept()
    theirs.setblocking(False)
    link = HintLink(
        uuid4(),
        SystemClock(),
        PeerTraffic(),
        hinted=heard.extend,
        told=lambda report: None,
        made=lambda made: None,
        lost=lost.append,
    )
    await asyncio.get_running_loop().create_connection(lambda: link, sock=ours)
    try:
        yield link, theirs, heard, lost
    finally:
        link.close()
        theirs.close()


async def _all_of(other: socket.socket, is_enough: Sequence[LogNews]) -> bytes:
    found = b""
    while not found.endswith(hint_link._BOUNDS.pack(*is_enough[-1])):
        found += await asyncio.wait_for(asyncio.get_running_loop().sock_recv(other, 1 << 20), 10)
    return found


async def test_a_broker_that_does_not_read_gets_the_newest_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hint_link, "MOST_WAITING", 50)
    async with _link_to_a_socket() as (link, other, _, _):
        for end in range(100_000):
            link.tell([_hint(end % 200, end)])
            if link._is_congested and len(link._waiting) == 50 and end % 200 == 199:
                break
            if end % 1000 == 0:
                await asyncio.sleep(0)
        assert link._is_congested
        newest = list(link._waiting.values())
        assert len(newest) == 50
        found = await _all_of(other, newest)
        assert len(found) > 64 * 1024
        assert not link._waiting


async def test_a_broker_that_does_not_read_is_told_later_what_clients_use() -> None:
    async with _link_to_a_socket() as (link, _, _, _):
        report = [ToldUse(b"x" * 8, 1, wants_more=False)] * 1000
        for _ in range(10_000):
            if link._is_congested:
                break
            link.tell_usage(report)
            await asyncio.sleep(0)
        assert link._is_congested
        waiting = link._transport.get_write_buffer_size()
        link.tell_usage(report)
        assert link._transport.get_write_buffer_size() == waiting


@pytest.mark.parametrize(
    "frame",
    [
        "ffffffff",
        "00000000",
        "00000004 00000000",
        "00000009 000000000000000000",
        "00000002 01 00",
        "0000000a 01 000000000000000000",
        "00000002 02 00",
        "00000001 03",
    ],
)
async def test_bytes_that_are_no_hints_end_the_connection(frame: str) -> None:
    async with _link_to_a_socket() as (_, other, heard, lost):
        other.send(bytes.fromhex(frame))
        await until(lambda: lost)
        assert not heard
