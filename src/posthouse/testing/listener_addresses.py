"""Where clients reach a broker that a test has started."""

from abc import ABC, abstractmethod


class ListenerAddresses(ABC):
    @abstractmethod
    def address(self, listener: str) -> str:
        """The address of a listener as host:port. Its name is that of its setting, such as "kafka_tls"."""

    @property
    def kafka(self) -> str:
        """The bootstrap address."""
        return self.address("kafka")

    @property
    def kafka_tls(self) -> str:
        return self.address("kafka_tls")

    @property
    def amqp(self) -> str:
        """The address for AMQP clients as host:port; prefix it with `amqp://guest:guest@`."""
        return self.address("amqp")

    @property
    def amqp_tls(self) -> str:
        return self.address("amqp_tls")

    @property
    def admin(self) -> str:
        """Where operators connect, over HTTP, as host:port."""
        return self.address("admin")
