"""The broker as the only node of a cluster."""

import os
import socket
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from posthouse.listener_settings import AMQP
from posthouse.protocols.admin.context import CallContext

RABBITMQ_VERSION = "3.13.0"
"""As the AMQP front end introduces itself."""


@cache
def node_name() -> str:
    return f"posthouse@{socket.gethostname()}"


def iso_time(milliseconds: int) -> str:
    """As RabbitMQ writes times."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")


def memory_used() -> int:
    """Resident memory of the process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors_used() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def connection_name(context: CallContext, peer: str) -> str:
    """As RabbitMQ names connections: from where to where."""
    address = next((each.address for each in context.listeners if each.protocol == AMQP.name), None)
    return f"{peer} -> {address}"


def peer_address(peer: str) -> dict[str, Any]:
    host, _, port = peer.rpartition(":")
    return {"peer_host": host.strip("[]"), "peer_port": int(port) if port.isdigit() else 0}
