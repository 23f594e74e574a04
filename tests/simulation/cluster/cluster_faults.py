"""What is done to a cluster, when and how often: all of it by the seed."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from posthouse.model.scopes import COORDINATOR, SPREAD, Scope, scope_of_namespace
from tests.checker.history import Fault
from tests.simulation.cluster.broker_host import BrokerHost
from tests.simulation.cluster.database_server import DatabaseServer
from tests.simulation.cluster.links import CLIENTS, DATABASE, Link, Links
from tests.simulation.cluster.sockets import TcpNetwork
from tests.simulation.cluster.statements import DRAIN, WANT
from tests.simulation.recorder import Recorder

LONGEST_DOWN = 6.0
LONGEST_PAUSE = 9.0
LONGEST_CUT = 9.0
COORDINATORS = 0.2
"""How many faults of a broker are meant for the coordinator."""
HOLDERS = 0.25
"""How many for a broker that serves the queues of a virtual host."""


class ClusterFaults:
    """Runs beside the clients, and puts everything right at the end."""

    def __init__(
        self,
        brokers: Sequence[BrokerHost],
        server: DatabaseServer,
        network: TcpNetwork,
        recorder: Recorder,
        random: Random,
        kinds: Sequence[str],
        vhosts: Sequence[str],
    ) -> None:
        self._brokers = brokers
        self._server = server
        self._network = network
        self._links: Links = network.links
        self._recorder = recorder
        self._random = random
        self._kinds = kinds
        self._of_queues = [scope_of_namespace(vhost) for vhost in vhosts]
        for each in brokers:
            each.on_death = self._died

    def _died(self, broker: BrokerHost, kind: str) -> None:
        self._note(kind)
        longest = 1.0 if kind == "failed start" else LONGEST_DOWN
        delay = self._random.random() * longest
        world = broker.world
        world.schedule(world.now_ns + int(delay * 1e9), broker.boot)

    def _note(self, kind: str) -> None:
        self._recorder.history.append(Fault(self._recorder.now, kind))

    async def run(self, count: int, longest_wait: float) -> None:
        for _ in range(count):
            await asyncio.sleep(self._random.random() * longest_wait)
            kind = self._random.choice(self._kinds)
            self._server.world.note(f"fault {kind}")
            KINDS[kind](self)
            if kind != "kill":  # which is noted when it has happened
                self._note(kind)

    def _chosen(self) -> BrokerHost:
        """Any broker, and often the coordinator or one that serves queues: others then have to notice, and to
        take over."""
        choice = self._random.random()
        holder = None
        if choice < COORDINATORS:
            holder = self._holder(COORDINATOR)
        elif choice < COORDINATORS + HOLDERS:
            holder = self._holder(self._random.choice(self._of_queues))
        return holder or self._random.choice(self._brokers)

    def _holder(self, scope: Scope) -> BrokerHost | None:
        tables = self._server.now()
        holder = tables.scopes[scope.name].holder
        for each in self._brokers:
            known = tables.brokers.get(each.name)
            if known is not None and known.incarnation == holder:
                return each
        return None

    def _later(self, longest: float, action: Callable[[], None]) -> None:
        world = self._server.world
        world.schedule(world.now_ns + int(self._random.random() * longest * 1e9), action)

    def _kill(self) -> None:
        self._chosen().die("kill")

    def _stop(self) -> None:
        self._chosen().stop()

    def _pause(self) -> None:
        self._chosen().pause(self._random.random() * LONGEST_PAUSE)

    def _jump(self) -> None:
        self._chosen().clock.jumped_ms += self._random.choice((-86_400_000, -1000, 1000, 3_600_000))

    def _cut(self, links: Sequence[Link]) -> None:
        """Both directions, or one of them."""
        if self._random.random() < 0.4:
            links = [self._random.choice(links)]
        for link in links:
            link.is_cut = True
            self._later(LONGEST_CUT, link.heal)

    def _cut_database(self) -> None:
        self._cut(self._links.both(self._chosen().name, DATABASE))

    def _cut_brokers(self) -> None:
        one, other = self._random.sample(list(self._brokers), 2)
        self._cut(self._links.both(one.name, other.name))

    def _cut_clients(self) -> None:
        self._cut(self._links.both(CLIENTS, self._chosen().name))

    def _slow(self) -> None:
        names = [CLIENTS, DATABASE, *(each.name for each in self._brokers)]
        one, other = self._random.sample(names, 2)
        slowest = self._random.choice((100_000, 20_000_000, 300_000_000))
        for link in self._links.both(one, other):
            link.slowest_ns = slowest

    def _crash_database(self) -> None:
        self._server.crash()
        self._later(4.0, self._server.restart)

    def _hang_database(self) -> None:
        self._server.process.pause(self._random.random() * 6.0)

    def _lose_answers(self) -> None:
        self._server.answers_to_lose += self._random.choice((1, 1, 3))

    def _lose_connections(self) -> None:
        broker = self._chosen()
        choice = self._random.random()
        if choice < 0.3:
            self._server.break_connections(broker.name)
            return
        other = CLIENTS if choice < 0.6 else self._chosen().name
        for each in self._network.between(other, broker.name):
            if self._random.random() < 0.5:
                self._network.reset(each)

    def _drain(self) -> None:
        broker = self._chosen()
        self._server.execute(DRAIN, [broker.name, True])
        self._later(10.0, partial(self._end_drain, broker))

    def _end_drain(self, broker: BrokerHost) -> None:
        self._server.execute(DRAIN, [broker.name, False])

    def _move_scopes(self) -> None:
        wanted = self._chosen().name
        others = [scope for scopes in SPREAD.values() for scope in scopes]
        choices = [COORDINATOR], self._of_queues, self._random.sample(others, 20)
        for scope in self._random.choice(choices):
            self._server.execute(WANT, [scope.name, wanted])

    async def heal(self) -> None:
        """Return when all brokers serve and nothing stands in their way."""
        self._server.restart()
        self._server.process.resume()
        self._server.answers_to_lose = 0
        for broker in self._brokers:
            self._end_drain(broker)
            broker.resume()
        self._links.heal()
        while not all(broker.is_up for broker in self._brokers):
            await asyncio.sleep(0.1)
            for broker in self._brokers:
                broker.boot()


KINDS: dict[str, Callable[[ClusterFaults], None]] = {
    "kill": ClusterFaults._kill,
    "stop": ClusterFaults._stop,
    "pause": ClusterFaults._pause,
    "clock jump": ClusterFaults._jump,
    "cut from database": ClusterFaults._cut_database,
    "cut between brokers": ClusterFaults._cut_brokers,
    "cut from clients": ClusterFaults._cut_clients,
    "slow network": ClusterFaults._slow,
    "database restart": ClusterFaults._crash_database,
    "database hangs": ClusterFaults._hang_database,
    "lost answers": ClusterFaults._lose_answers,
    "lost connections": ClusterFaults._lose_connections,
    "drain": ClusterFaults._drain,
    "moved scopes": ClusterFaults._move_scopes,
}
