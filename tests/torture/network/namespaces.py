"""Hosts in network namespaces, on one bridge, whose links can be cut, slowed down and mended.

    posthouse-<pid>-<n>-switch      the bridge
    posthouse-<pid>-<n>-<host>      one host: loopback, and eth0 with a fixed address

Every host knows the hardware addresses of all others from the start, and no host asks for them. A link is cut
in one direction by giving the sender a hardware address that no host has: its packets are lost without an
error, those of open connections, too. Only `ip` is needed for that. A slow link is a token bucket (`tc`), and
a delay where the kernel has netem.

The names contain the process that made them. What a killed process has left is removed by the next one, with
everything that still runs in it.
"""

import ctypes
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path

_PREFIX = "posthouse"
_OURS = re.compile(rf"{_PREFIX}-(\d+)-\d+-\w+")
_SWITCH = "switch"
_BRIDGE = "bridge"
_LINK = "eth0"
_NAMED = Path("/run/netns")
_OWN = Path("/proc/thread-self/ns/net")
_NO_HOST = "02:00:00:00:ff:ff"
_CLONE_NEWNET = 0x40000000
_PROBED = "probed"
_LATENCY_MS = 3000
"""Of a slow link: packets that would wait longer in its queue are dropped."""

_numbers = count(1)


class CannotMakeNamespaces(Exception):
    """Network namespaces need root, Linux and iproute2."""


class Network:
    """Made by `open`, gone with `close`. All hosts reach each other until a link is cut."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self._numbers = {host: number for number, host in enumerate(hosts, start=1)}
        self._stem = f"{_PREFIX}-{os.getpid()}-{next(_numbers)}"
        self._cuts: set[tuple[str, str]] = set()
        self._slow: set[str] = set()

    @property
    def hosts(self) -> list[str]:
        return list(self._numbers)

    def address(self, host: str) -> str:
        return f"10.77.0.{self._numbers[host]}"

    def namespace(self, host: str) -> str:
        return f"{self._stem}-{host}"

    def open(self) -> None:
        """Raises CannotMakeNamespaces."""
        remove_leftovers()
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    def _make(self) -> None:
        switch = self.namespace(_SWITCH)
        _ip("netns", "add", switch)
        _ip("-n", switch, "link", "add", _BRIDGE, "type", "bridge")
        _ip("-n", switch, "link", "set", _BRIDGE, "up")
        for host, number in self._numbers.items():
            own = self.namespace(host)
            _ip("netns", "add", own)
            _ip("-n", own, "link", "set", "lo", "up")
            port = f"port{number}"
            _ip("link", "add", port, "netns", switch, "type", "veth", "peer", "name", _LINK, "netns", own)
            _ip("-n", switch, "link", "set", port, "master", _BRIDGE, "up")
            _ip("-n", own, "link", "set", _LINK, "address", _hardware_address(number), "up")
            _ip("-n", own, "address", "add", f"{self.address(host)}/24", "dev", _LINK)
        for source in self._numbers:
            for target in self._numbers:
                if source != target:
                    self._connect(source, target, _hardware_address(self._numbers[target]))

    def _connect(self, source: str, target: str, hardware_address: str) -> None:
        _ip(
            *("-n", self.namespace(source), "neigh", "replace", self.address(target)),
            *("lladdr", hardware_address, "dev", _LINK, "nud", "permanent"),
        )

    def cut(self, source: str, target: str) -> None:
        """What the source sends to the target is lost. The other direction stays."""
        self._connect(source, target, _NO_HOST)
        self._cuts.add((source, target))

    def slow_down(self, host: str, *, kbit: int, delay_ms: int) -> None:
        """All that the host sends. Without netem there is no delay but that of the narrow link."""
        own = self.namespace(host)
        bucket = ("tbf", "rate", f"{kbit}kbit", "burst", "3000", "latency", f"{_LATENCY_MS}ms")
        self._slow.add(host)
        if has_netem():
            _tc(own, "replace", "root", "handle", "1:", "netem", "delay", f"{delay_ms}ms")
            _tc(own, "replace", "parent", "1:", *bucket)
        else:
            _tc(own, "replace", "root", *bucket)

    def heal(self) -> None:
        """All links are as they were made."""
        for source, target in self._cuts:
            self._connect(source, target, _hardware_address(self._numbers[target]))
        for host in self._slow:
            _tc(self.namespace(host), "del", "root")
        self._cuts.clear()
        self._slow.clear()

    def close(self) -> None:
        for host in (*self._numbers, _SWITCH):
            _remove(self.namespace(host))


def _hardware_address(number: int) -> str:
    return f"02:00:00:00:00:{number:02x}"


def enter(namespace: str) -> None:
    """The calling thread, and the threads and processes that it starts, are in the namespace from now on."""
    _set_namespace(_NAMED / namespace)


@contextmanager
def inside(namespace: str) -> Iterator[None]:
    """The calling thread is in the namespace, and then where it was before."""
    before = os.open(_OWN, os.O_RDONLY)
    try:
        enter(namespace)
        try:
            yield
        finally:
            _set_descriptor(before)
    finally:
        os.close(before)


def _set_namespace(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        _set_descriptor(descriptor)
    finally:
        os.close(descriptor)


def _set_descriptor(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def remove_leftovers() -> None:
    """Namespaces of processes that are gone, and what still runs in them."""
    for path in _NAMED.glob(f"{_PREFIX}-*"):
        match = _OURS.fullmatch(path.name)
        if match is not None and not Path(f"/proc/{match[1]}").exists():
            _remove(path.name)


def _remove(namespace: str) -> None:
    if not (_NAMED / namespace).exists():
        return
    for process in _ip("netns", "pids", namespace).split():
        if int(process) != os.getpid():
            with suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGKILL)
    _ip("netns", "delete", namespace)


def _ip(*arguments: str) -> str:
    return _run("ip", *arguments)


def _tc(namespace: str, verb: str, *arguments: str) -> None:
    _run("ip", "netns", "exec", namespace, "tc", "qdisc", verb, "dev", _LINK, *arguments)


def _run(*command: str) -> str:
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except FileNotFoundError:
        raise CannotMakeNamespaces(f"{command[0]} is not there: apt-get install iproute2") from None
    except subprocess.CalledProcessError as error:
        raise CannotMakeNamespaces(f"{' '.join(command)}: {error.stderr.strip()}") from None


@cache
def has_netem() -> bool:
    with _probe() as network:
        try:
            _tc(network.namespace(_PROBED), "replace", "root", "netem", "delay", "1ms")
        except CannotMakeNamespaces:
            return False
    return True


@cache
def why_not() -> str | None:
    """What is in the way of network namespaces here; None if nothing is."""
    try:
        with _probe() as network, inside(network.namespace(_PROBED)):
            network.slow_down(_PROBED, kbit=1000, delay_ms=1)
    except (CannotMakeNamespaces, OSError) as error:
        return str(error)
    return None


@contextmanager
def _probe() -> Iterator[Network]:
    network = Network([_PROBED])
    network.open()
    try:
        yield network
    finally:
        network.close()
