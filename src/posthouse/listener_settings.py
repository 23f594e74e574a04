"""The listeners of all protocols, and the security checks before one is opened.

Settings declare the address of a listener with `listener_setting`, and front ends find it by its
protocol. So these checks cover every listener.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from posthouse.model.address import Address
from posthouse.model.errors import InvalidConfig
from posthouse.setting_values import parse_address_or_off

__all__ = [
    "ADMIN",
    "AMQP",
    "KAFKA",
    "ROCKETMQ",
    "ROCKETMQ_GRPC",
    "Address",
    "DeclaredListener",
    "ListenerRules",
    "ListenerSettings",
    "WireProtocol",
    "listener_names",
    "listener_setting",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class WireProtocol:
    """A protocol of clients, as far as the checks of its listeners need it."""

    name: str
    label: str
    """The name in log lines and errors."""
    sends_passwords: bool = True
    """Clients log in by sending the password itself. With SCRAM, for example, they prove it instead."""
    has_clusters: bool = True
    """Whether a broker of a cluster can serve them."""
    is_optional: bool = False
    """Whether its listeners are off unless they are asked for."""
    tls_is_optional: bool = False
    """Whether its listeners take clients with and without TLS, once the broker has a certificate."""
    offered_protocol: str | None = None
    """What clients with TLS are offered as the protocol in it (ALPN)."""


KAFKA = WireProtocol(name="kafka", label="Kafka", sends_passwords=False)
AMQP = WireProtocol(name="amqp", label="AMQP")
ADMIN = WireProtocol(name="admin", label="HTTP")
ROCKETMQ = WireProtocol(
    name="rocketmq",
    label="RocketMQ",
    sends_passwords=False,
    has_clusters=False,
    is_optional=True,
    tls_is_optional=True,
)
ROCKETMQ_GRPC = WireProtocol(
    name="rocketmq_grpc",
    label="RocketMQ gRPC",
    sends_passwords=False,
    has_clusters=False,
    is_optional=True,
    tls_is_optional=True,
    offered_protocol="h2",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredListener:
    """The declaration of a setting that holds the address of a listener."""

    protocol: WireProtocol
    has_tls: bool


def listener_setting(
    default: Address | None, protocol: WireProtocol, doc: str, *, has_tls: bool = False
) -> Any:
    """Declares the address of a listener. `Settings.listeners` finds it, so that it is served and checked."""
    declared = DeclaredListener(protocol=protocol, has_tls=has_tls)
    metadata = {"parse": parse_address_or_off, "doc": doc, "listener": declared}
    return field(default=default, metadata=metadata)


def listener_names(settings: type[Any], *, with_tls: bool, with_optional: bool) -> list[str]:
    """The settings of a class that hold the address of a listener."""
    declared = {each.name: each.metadata.get("listener") for each in fields(settings)}
    return [
        name
        for name, listener in declared.items()
        if listener
        and (with_tls or not listener.has_tls)
        and (with_optional or not listener.protocol.is_optional)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSettings:
    """One enabled listener."""

    name: str
    """Name of the setting that holds the address; also the listener's name in the ready line."""
    declared: DeclaredListener
    address: Address
    advertised: Address | None
    """Address that the broker advertises to clients, for protocols that do so: the setting
    NAME_advertised."""

    @property
    def protocol(self) -> WireProtocol:
        return self.declared.protocol

    @property
    def has_tls(self) -> bool:
        return self.declared.has_tls


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerRules:
    """Checks for listeners that would be open to strangers or expose passwords. `check` raises
    InvalidConfig."""

    must_log_in: bool
    allow_open_network: bool
    allow_cleartext_passwords: bool
    is_in_cluster: bool = False

    def check(self, listeners: Sequence[ListenerSettings]) -> None:
        for each in listeners:
            self._check_protocol(each)
            self._check_open_network(each)
        for each in listeners:
            self._check_cleartext_passwords(each)
        names: dict[Address, str] = {}
        for each in listeners:
            other = names.setdefault(each.address, each.name)
            if other != each.name and each.address.port:
                raise InvalidConfig(
                    f"{other} and {each.name} are both to listen on {each.address}; each needs an address of "
                    "its own"
                )

    def _check_protocol(self, listener: ListenerSettings) -> None:
        protocol = listener.protocol
        if self.is_in_cluster and not protocol.has_clusters:
            raise InvalidConfig(
                f"{protocol.label} clients are served by a broker that is alone: with --database, turn "
                f"{listener.name} off"
            )

    def _check_open_network(self, listener: ListenerSettings) -> None:
        if not self.must_log_in and not self.allow_open_network and not listener.address.is_loopback:
            raise InvalidConfig(
                f"refusing to listen on {listener.address}: anyone who reaches it could read and write "
                "everything. Bind to 127.0.0.1, let users log in with --authentication required, or set "
                "--allow-open-network if that is what you want."
            )

    def _check_cleartext_passwords(self, listener: ListenerSettings) -> None:
        """Raises if passwords would be sent without TLS beyond this machine."""
        protocol = listener.protocol
        is_private = listener.has_tls or listener.address.is_loopback
        if is_private or not protocol.sends_passwords or not self.must_log_in:
            return
        if not self.allow_cleartext_passwords:
            raise InvalidConfig(
                f"refusing to listen on {listener.address}: {protocol.label} clients would send their "
                f"passwords in the clear. Use {protocol.name}_tls, or set --allow-cleartext-passwords."
            )
