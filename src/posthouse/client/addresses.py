"""Addresses of brokers."""

from typing import NamedTuple

from posthouse.client.errors import BadArgument

DEFAULT_PORT = 9092


class Node(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_bootstrap(text: str) -> list[Node]:
    """`host:port`, several separated by commas; without a port Kafka's own is meant."""
    nodes = [parse_address(part.strip(), DEFAULT_PORT) for part in text.split(",") if part.strip()]
    if not nodes:
        raise BadArgument("the bootstrap address is empty; write HOST:PORT, for example 127.0.0.1:9092")
    return nodes


def parse_address(text: str, default_port: int) -> Node:
    """`host:port`, or `host` alone."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(default_port)
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise BadArgument(
            f"{text!r} is not an address; write HOST:PORT, for example 127.0.0.1:{default_port}"
        )
    return Node(host.strip("[]"), int(port))
