"""One seed of a cluster: three brokers, one database, clients, faults, and the verdict."""

import asyncio
import contextlib
import gc
import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import psycopg

from posthouse.broker.groups import groups
from posthouse.broker.queues import namespaces
from posthouse.cluster import peer_connection
from posthouse.protocols import listening
from posthouse.storage.shared import engine, stores, time_limit
from posthouse.storage.shared.commits import commit_call
from posthouse.storage.shared.membership import link
from posthouse.storage.shared.objects.memory import MemoryObjectStore
from tests.checker.judge import check
from tests.simulation.amqp_client import DEFAULT_VHOST
from tests.simulation.cluster.broker_host import BrokerHost, ClusterLimits
from tests.simulation.cluster.cluster_client import ClusterClient
from tests.simulation.cluster.cluster_controls import NO_CONTROL, ClusterControl
from tests.simulation.cluster.cluster_faults import ClusterFaults
from tests.simulation.cluster.cluster_loop import ClusterLoop
from tests.simulation.cluster.database_connection import connections_to, cut
from tests.simulation.cluster.database_server import DatabaseServer
from tests.simulation.cluster.fed_queue import FedQueue
from tests.simulation.cluster.links import CLIENTS, Links
from tests.simulation.cluster.sockets import SocketModule, TcpNetwork
from tests.simulation.consuming import read_all
from tests.simulation.kafka_client import KafkaClient, Refused
from tests.simulation.kafka_wire import Lost
from tests.simulation.producing import PAUSE
from tests.simulation.queueing import QueuePlace, drain
from tests.simulation.recorder import Recorder
from tests.simulation.scenario import FAULTS_FROM_THE_START, SETTLED_SECONDS, Result, quiet
from tests.simulation.workload import TOPICS, Workload, partitions_of
from tests.simulation.world import NS, Process, World

LIMIT_SECONDS = 900
BROKERS = 3
FED = 0.5
"""How many seeds have a queue that gets the records of one topic, or of the other."""
LATEST_DECLARATION = 5.0
VHOSTS = ("north", "south")
"""The scopes of these and of the default one are three different ones."""
HAVE_VHOSTS = 0.5
"""How many seeds have them."""


class ClusterScenario:
    def __init__(self, seed: int, *, keep_trace: bool = False, control: ClusterControl = NO_CONTROL) -> None:
        self.world = World(seed, keep_trace=keep_trace)
        self.random = self.world.random("scenario")
        self.failures: list[str] = []
        self.is_sound = True
        self._control = control
        links = Links(self.world)
        self.network = TcpNetwork(self.world, links, asyncio.get_running_loop)  # type: ignore[arg-type]
        self.network.breaks_up = self.random.choice((0.0, 0.1, 0.3))
        self.server = DatabaseServer(self.world, links)
        self.server.slowest_ns = self.random.choice((100_000, 1_000_000, 50_000_000))
        control.prepare(self.server)
        self.recorder = Recorder(self.world)
        self.recorder.pace = self.random.choice((1, 10, 30))
        vhosts = VHOSTS if self.world.random("virtual hosts").random() < HAVE_VHOSTS else ()
        limits = self._limits(vhosts)
        hosts = {f"127.0.0.{number}": f"broker-{number}" for number in range(1, BROKERS + 1)}
        self.addresses = list(hosts)
        self.brokers = [
            BrokerHost(number, self.world, self.network, self.server, limits, hosts, self._failed)
            for number in range(1, BROKERS + 1)
        ]
        self.faults = ClusterFaults(
            self.brokers,
            self.server,
            self.network,
            self.recorder,
            self.world.random("faults"),
            control.kinds,
            (DEFAULT_VHOST, *vhosts),
        )
        self.loop = ClusterLoop(
            Process(self.world, CLIENTS),
            self.network,
            self._failed,
            host=CLIENTS,
            address="127.0.1.1",
            hosts=hosts,
        )
        self._over = False
        self._judging = False
        self._topic_ids: dict[str, bytes] = {}
        self._random_bytes = self.world.random("bytes")
        self._clients = 0
        hosts_of_queues = self.world.random("queue hosts")

        def queue_host() -> str:
            return hosts_of_queues.choice(self.addresses)

        places = [QueuePlace(vhost=vhost, host=queue_host) for vhost in (DEFAULT_VHOST, *vhosts)]
        self.workload = Workload(self.world, self.recorder, self._client, places)
        # What is trimmed is not in the queue either.
        topics = ("outcomes",) if "trimming" in self.workload.parts else ("outcomes", "orders")
        self.fed_queues = [
            FedQueue(topic, places[0], self.recorder) for topic in topics if hosts_of_queues.random() < FED
        ]
        self._declares = hosts_of_queues.choice(("before topics", "before work", "during work"))

    def _limits(self, vhosts: tuple[str, ...]) -> ClusterLimits:
        choose = self.random.choice
        return ClusterLimits(
            connection_buffer_bytes=choose((500, 5000, 1_000_000)),
            tail_bytes=choose((300, 5000, 1_000_000)),
            inline_bytes=512 * 1024,
            vhosts=vhosts,
        )

    def _failed(self, who: str, context: dict[str, Any]) -> None:
        error = context.get("exception")
        shown = "" if error is None else "".join(traceback.format_exception(error))
        self.world.note(f"{who}: {context.get('message')} {shown}")
        self.fail(f"{who}: {context.get('message')} {error!r} {context.get('task', '')}")

    def fail(self, reason: str) -> None:
        """Once is enough: what happens after a mistake says nothing."""
        if not self._judging:
            self.failures.append(reason)
            self._over = True

    def run(self) -> Result:
        with self._installed(), quiet(self):
            for broker in self.brokers:
                delay = self.random.random()
                self.world.schedule(self.world.now_ns + int(delay * NS), broker.boot)
            main = self.loop.create_task(self._main())
            main.add_done_callback(self._ended)
            try:
                self.world.run_until(lambda: self._over, limit_ns=LIMIT_SECONDS * NS)
            except TimeoutError as error:
                self.failures.append(str(error))
            self._judging = True
            for broker in self.brokers:
                broker.scrap()
            self.loop.bury()
        report = check(self.recorder.history)
        report.anomalies += self.workload.anomalies()
        if not self.failures:
            for queue in self.fed_queues:
                report.anomalies += queue.anomalies(self.recorder.history)
        return Result(
            self.world.seed,
            report,
            self.world.digest,
            self.world.steps,
            sum(broker.lives for broker in self.brokers),
            self.world.now_ns / NS,
            self.world.trace,
            self.recorder.history,
            self.failures,
        )

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._over = True
        error = task.exception()
        if error is not None:
            self.fail("the clients failed: " + "".join(traceback.format_exception(error)))

    async def _main(self) -> None:
        random = self.random
        faults = self.faults.run(random.randrange(2, 11), longest_wait=random.choice((0.3, 1.0, 3.0)))
        if random.random() < FAULTS_FROM_THE_START:
            faulty = self.loop.create_task(faults)
            await self._create_topics()
        else:
            await self._create_topics()
            faulty = self.loop.create_task(faults)
        attendance = asyncio.gather(*self.workload.attendance())
        work = asyncio.gather(*self.workload.work())
        if self._declares == "during work":
            await asyncio.sleep(random.random() * LATEST_DECLARATION)
            await self._declare_fed_queues()
        await faulty
        await asyncio.sleep(random.choice((0.0, 1.0, 6.0)))
        await self.faults.heal()
        await work
        self.recorder.is_over = True
        await attendance
        await self.faults.heal()
        await self._read_everything()
        if self.workload.queues:
            await asyncio.sleep(SETTLED_SECONDS)
        for queue, place in self.workload.queues.items():
            await self._drain(queue, place)
        for fed_queue in self.fed_queues:
            await fed_queue.read()

    async def _declare_fed_queues(self) -> None:
        for queue in self.fed_queues:
            await queue.declare()

    async def _create_topics(self) -> None:
        if self._declares == "before topics":
            await self._declare_fed_queues()
        client = self._client()
        while True:
            try:
                await client.create_topics(TOPICS, {})
                await client.learn_topics(list(TOPICS))
            except (Lost, Refused):
                await asyncio.sleep(PAUSE)
            else:
                self._topic_ids |= client.topics
                client.disconnect()
                break
        if self._declares == "before work":
            await self._declare_fed_queues()

    def _client(self) -> KafkaClient:
        self._clients += 1
        client = ClusterClient(self.addresses, self.world.random(f"client {self._clients}"))
        client.topics = self._topic_ids
        return client

    async def _read_everything(self) -> None:
        partitions = [partition for topic in TOPICS for partition in partitions_of(topic)]
        for committed_only in (False, True):
            client = self._client()
            while True:
                try:
                    await read_all(self.recorder, client, partitions, committed_only=committed_only)
                    break
                except (Lost, Refused):
                    await asyncio.sleep(PAUSE)  # a coordinator may just have been exchanged
            client.disconnect()

    async def _drain(self, queue: str, place: QueuePlace) -> None:
        """As long as a broker says that it may not answer now, another one is asked."""
        values: list[int] = []
        while True:
            with contextlib.suppress(Lost, TimeoutError):
                await drain(self.recorder, queue, place, values)
                return
            await asyncio.sleep(PAUSE)

    @contextmanager
    def _installed(self) -> Iterator[None]:
        """Brokers use simulated sockets and connections to the simulated database, and what they take from
        the system's randomness (ids of topics, of members, of themselves) comes from the seed."""
        sockets = SocketModule(self.network)
        objects = MemoryObjectStore(self.brokers[0].clock)
        with contextlib.ExitStack() as stack:
            for owner, name, replacement in (
                (os, "urandom", self._random_bytes.randbytes),
                (psycopg, "AsyncConnection", connections_to(self.server)),
                (listening, "socket", sockets),
                (peer_connection, "socket", sockets),
                (time_limit, "cut", cut),
                (link, "cut", cut),
                (commit_call, "cut", cut),
                (stores, "open_object_store", lambda url, **options: objects),
                (engine, "CommitCall", self._control.commit_call),
                (engine, "Committer", self._control.committer),
                (groups, "GroupOffsets", self._control.group_offsets),
                (namespaces, "PendingReferrals", self._control.referrals),
            ):
                stack.enter_context(mock.patch.object(owner, name, replacement))
            yield


def run(seed: int, *, keep_trace: bool = False, control: ClusterControl = NO_CONTROL) -> Result:
    # Nothing is collected in between: what the dead left behind must not act while others live.
    gc.collect()
    gc.disable()
    try:
        return ClusterScenario(seed, keep_trace=keep_trace, control=control).run()
    finally:
        gc.enable()
