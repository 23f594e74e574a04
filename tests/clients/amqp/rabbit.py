"""The broker under test, as clients see it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rabbit:
    address: str
    kafka: str | None
    """Where the same broker serves Kafka clients; None of RabbitMQ."""

    @property
    def host(self) -> str:
        return self.address.rpartition(":")[0]

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def url(self) -> str:
        """The virtual host "/" of the user guest."""
        return f"amqp://guest:guest@{self.address}/%2F"
