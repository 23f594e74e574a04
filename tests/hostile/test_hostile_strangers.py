"""Those who have not logged in: they get little memory, little time, and nothing else."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from posthouse.protocols.amqp.codec.framing import FRAME, PROTOCOL
from posthouse.protocols.kafka.codec.headers import encode_request_header
from posthouse.protocols.kafka.codec.primitives import uvarint
from tests.hostile.attacks import is_refused
from tests.hostile.loris import SlowLoris
from tests.hostile.peers import Peer
from tests.hostile.victim import ALLOWED_GROWTH, MIB, UNPUNISHED, Victim, victim
from tests.wire.kafka import framed

pytestmark = pytest.mark.timeout(120)

PASSWORD = "correct horse"
MAX_CONNECTIONS = 400
SECONDS_TO_LOG_IN = 10


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    data: Path = tmp_path_factory.mktemp("hostile-strangers")
    password = data / "password"
    password.write_text(PASSWORD)
    password.chmod(0o600)
    with victim(
        data / "data",
        authentication="required",
        admin_password_file=password,
        max_connections=MAX_CONNECTIONS,
        **UNPUNISHED,
    ) as process:
        yield process


def is_served(guarded: Victim) -> bool:
    """Whether somebody who can log in gets a record in."""
    outcomes: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": "{}:{}".format(*guarded.kafka_address),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "admin",
            "sasl.password": PASSWORD,
            "log_level": 0,
        }
    )
    producer.produce("good", b"value", on_delivery=lambda error, _: outcomes.append(error))
    producer.flush(30)
    return outcomes == [None]


STRANGE_REQUESTS = {
    "a frame of more than 64 KiB": struct.pack(">i", 64 * 1024 + 1) + encode_request_header(18, 3, 1, "x"),
    "20 million tagged fields in 64 KiB": framed(
        encode_request_header(18, 4, 1, "x")[:-1] + uvarint(20_000_000) + b"\x05\x00" * 32_000
    ),
    "an array of 16 GB": framed(encode_request_header(3, 12, 1, "x") + uvarint(2**31 - 1)),
    "a request for those who are known": framed(encode_request_header(3, 1, 1, "x") + bytes(4)),
    "a frame of -1 bytes": struct.pack(">i", -1),
}


@pytest.mark.parametrize("name", STRANGE_REQUESTS)
def test_strangers_are_sent_away(guarded: Victim, name: str) -> None:
    before = guarded.begin()
    for _ in range(20):
        with Peer(guarded.kafka_address) as peer:
            peer.send(STRANGE_REQUESTS[name])
            assert peer.is_closed(SECONDS_TO_LOG_IN - 1)
    assert is_served(guarded)
    growth = guarded.peak() - before
    assert growth < ALLOWED_GROWTH, f"{growth // MIB} MiB more"


def test_bodies_before_a_login(guarded: Victim) -> None:
    """A publish of 100 MiB, to see what is kept of it."""
    before = guarded.begin()
    publish = struct.pack(">I", 0x003C0028) + b"\0\0\0\x01q\0"
    with Peer(guarded.amqp_address) as peer:
        peer.send(PROTOCOL + FRAME.pack(1, 1, len(publish)) + publish + b"\xce")
        peer.send(FRAME.pack(2, 1, 14) + struct.pack(">HHQH", 60, 0, 100 * MIB, 0) + b"\xce")
        body = FRAME.pack(3, 1, 60_000) + bytes(60_000) + b"\xce"
        for _ in range(1700):
            peer.send(body)
        assert is_refused(peer)
    assert is_served(guarded)
    growth = guarded.peak() - before
    assert growth < ALLOWED_GROWTH, f"{growth // MIB} MiB more"


@pytest.mark.parametrize("protocol", ["kafka", "amqp"])
def test_slow_loris(guarded: Victim, protocol: str) -> None:
    """More connections than the broker has room for, none of which ever says anything whole."""
    before = guarded.begin()
    address = guarded.kafka_address if protocol == "kafka" else guarded.amqp_address
    with SlowLoris(address, MAX_CONNECTIONS + 100) as loris:
        loris.connect_all()
        loris.drip()
        assert is_served(guarded)
        assert loris.connected < MAX_CONNECTIONS
        assert loris.is_gone_after(SECONDS_TO_LOG_IN + 5), f"{loris.connected} are still connected"
    growth = guarded.peak() - before
    assert growth < ALLOWED_GROWTH, f"{growth // MIB} MiB more"
