"""Hosts in namespaces: what is cut is lost without an error, what is mended arrives."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.torture.network.namespaces import Network, inside, remove_leftovers, why_not

_PORT = 9000
_SOON = 0.3


@pytest.fixture
def network() -> Iterator[Network]:
    if (reason := why_not()) is not None:
        pytest.skip(f"network namespaces cannot be made here: {reason}")
    made = Network(["x", "y"])
    made.open()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def ends(network: Network) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Of a connection from x to y."""
    with inside(network.namespace("y")):
        listening = socket.create_server((network.address("y"), _PORT))
    with inside(network.namespace("x")):
        x = socket.create_connection((network.address("y"), _PORT), 30)
    y, _ = listening.accept()
    with listening, x, y:
        yield x, y


def _arrives(source: socket.socket, target: socket.socket, seconds: float) -> bool:
    source.sendall(b"1")
    target.settimeout(seconds)
    with suppress(TimeoutError):
        return target.recv(100) != b""
    return False


def test_a_link_is_cut_in_one_direction_and_mended(
    network: Network, ends: tuple[socket.socket, socket.socket]
) -> None:
    x, y = ends
    assert _arrives(x, y, 30) and _arrives(y, x, 30)
    network.cut("x", "y")
    assert not _arrives(x, y, _SOON)
    network.heal()
    assert y.recv(100) == b"1"  # the system has sent it again
    assert _arrives(x, y, 30) and _arrives(y, x, 30)


def test_no_connection_is_made_over_a_cut_link(network: Network) -> None:
    with inside(network.namespace("y")):
        listening = socket.create_server((network.address("y"), _PORT))
    network.cut("y", "x")
    with listening, inside(network.namespace("x")), pytest.raises(TimeoutError):
        socket.create_connection((network.address("y"), _PORT), _SOON)


def test_a_slow_link_takes_its_time(network: Network, ends: tuple[socket.socket, socket.socket]) -> None:
    x, y = ends
    network.slow_down("x", kbit=64, delay_ms=1)
    begun = time.monotonic()
    x.sendall(bytes(10_000))
    _receive(y, 10_000)
    assert time.monotonic() - begun > 0.7  # 10,000 bytes without the burst, at 8,000 bytes a second
    network.heal()


def _receive(sock: socket.socket, size: int) -> None:
    while size > 0:
        size -= len(sock.recv(size))


def test_what_a_killed_process_has_left_is_removed(network: Network) -> None:
    """Names contain a process, and what runs in the namespaces ends with them."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    left = f"posthouse-{gone.pid}-1-x"
    subprocess.run(["ip", "netns", "add", left], check=True)
    sleeping = subprocess.Popen(["ip", "netns", "exec", left, "sleep", "600"])
    while not _runs_in(sleeping.pid, left):
        assert sleeping.poll() is None
    remove_leftovers()
    assert sleeping.wait(30) < 0
    assert not Path("/run/netns", left).exists()
    assert Path("/run/netns", network.namespace("x")).exists()


def _runs_in(pid: int, namespace: str) -> bool:
    return Path("/run/netns", namespace).samefile(f"/proc/{pid}/ns/net")
