"""The bank with everything that it runs on: two PostgreSQL servers, a broker, relays and services."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from examples.bank.messages import RECEIPTS, TRANSFERS
from examples.bank.opening import open_bank
from posthouse.client import Client
from posthouse.settings import Address, Settings
from tests.postgres import LOOPBACK, PostgresServer, free_port
from tests.torture.bank import programs
from tests.torture.bank.services import Service
from tests.torture.brokers import BrokerProcess, Recipe

PARTITIONS: Final = 2
TELLER: Final = "teller"
CREDITS: Final = "credits"
_SERVERS: Final = ("accounts-database", "credits-database")
_BROKER: Final = "broker"
_ACCOUNTS_RELAYS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class BankRecipe(Recipe):
    """A broker that comes back at the same address."""

    kafka: Address

    def settings(self) -> Settings:
        return self.plain_settings(kafka=self.kafka, rocketmq=None, rocketmq_grpc=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Staff:
    """The programs that controls replace."""

    teller: Callable[[str, str, int, int], None] = programs.serve_customers
    credits: Callable[[str, str], None] = programs.consume_transfers


class Arena:
    def __init__(self, place: Path, staff: Staff) -> None:
        self._place = place
        self._staff = staff
        place.mkdir(parents=True, exist_ok=True)
        place.chmod(0o755)  # PostgreSQL is another user
        # Processes are killed, not machines: nothing is lost without syncs.
        self._servers = {name: PostgresServer(place / name, free_port(), ("fsync=off",)) for name in _SERVERS}
        address = Address(LOOPBACK, free_port())
        self.kafka = str(address)
        self._recipe = BankRecipe(data=place / "data", log=place / "broker.log", kafka=address)
        self._broker = BrokerProcess(self._recipe)
        self.accounts_url, self.credits_url = (each.url() for each in self._servers.values())
        self._services = {each.name: each for each in self._made_services()}
        self._teller = self._service(TELLER, staff.teller, self.accounts_url, 0, 0)

    def _made_services(self) -> Iterator[Service]:
        for number in range(_ACCOUNTS_RELAYS):
            yield self._service(f"accounts-relay-{number}", programs.relay, self.accounts_url)
        yield self._service("credits-relay", programs.relay, self.credits_url)
        yield self._service("accounts", programs.consume_receipts, self.accounts_url)
        yield self._service(CREDITS, self._staff.credits, self.credits_url)

    def _service(self, name: str, program: Callable[..., None], url: str, *more: Any) -> Service:
        return Service(name, program, (url, self.kafka, *more), self._place / f"{name}.log")

    @property
    def logs(self) -> list[Path]:
        return [*self._place.glob("*.log"), *self._place.glob("*/server.log")]

    @property
    def broker_log(self) -> Path:
        return self._recipe.log

    @property
    def targets(self) -> list[str]:
        """Everything that may be killed."""
        return [TELLER, *self._services, *self._servers, _BROKER]

    def open(self) -> None:
        for server in self._servers.values():
            server.init()
            server.start()
        open_bank(self.accounts_url, self.credits_url)
        self._start_broker()
        with Client(self.kafka) as client:
            for topic in (TRANSFERS, RECEIPTS):
                client.create_topic(topic, partitions=PARTITIONS)
        for service in self._services.values():
            service.start()

    def close(self) -> None:
        for service in (self._teller, *self._services.values()):
            service.kill()
        self._broker.kill()
        for server in self._servers.values():
            if server.process is not None:
                server.kill()

    def open_counter(self, customers: int, seed: int) -> None:
        """The teller serves these customers, and ends."""
        self._teller = self._service(TELLER, self._staff.teller, self.accounts_url, customers, seed)
        self._teller.start()

    @property
    def is_counter_open(self) -> bool:
        return self._teller.is_alive

    def kill(self, name: str) -> bool:
        """kill -9; False if it is a teller who has gone home already."""
        if name == TELLER:
            if not self._teller.is_alive:
                return False
            self._teller.kill()
        elif name == _BROKER:
            self._broker.kill()
        elif name in self._servers:
            self._servers[name].kill()
        else:
            self._services[name].kill()
        return True

    def start(self, name: str) -> None:
        """What was killed."""
        if name == TELLER:
            self._teller.start()
        elif name == _BROKER:
            self._start_broker()
        elif name in self._servers:
            self._servers[name].start()
        else:
            self._services[name].start()

    def _start_broker(self) -> None:
        self._broker = BrokerProcess(self._recipe)
        asyncio.run(self._broker.start())

    def ended_by_themselves(self) -> list[str]:
        """Nothing but the teller does, and that one without an error."""
        ended = [f"{each.name} ended by itself" for each in self._services.values() if not each.is_alive]
        if not self._teller.is_alive and self._teller.exit_code != 0:
            ended.append(f"the teller ended with {self._teller.exit_code}")
        if not self._broker.is_alive:
            ended.append("the broker ended by itself")
        return ended


@contextmanager
def opened(place: Path, staff: Staff) -> Iterator[Arena]:
    arena = Arena(place, staff)
    try:
        arena.open()
        yield arena
    finally:
        arena.close()
