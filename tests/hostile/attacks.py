"""What broke others. Each attack does its worst once, and says whether the broker answered as it should."""

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from posthouse.protocols.amqp.codec.framing import FRAME, PROTOCOL
from posthouse.protocols.kafka.codec.generated.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from posthouse.protocols.kafka.codec.headers import encode_request_header
from posthouse.protocols.kafka.codec.primitives import uvarint
from posthouse.records.compression import Codec
from tests.hostile import bombs
from tests.hostile.peers import KafkaPeer, Peer
from tests.hostile.victim import Victim
from tests.wire.kafka import framed

MIB = 1024 * 1024
MESSAGE_TOO_LARGE = 10
CODECS = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
_NUMBERS = count()
_CHANNEL_CLOSE = b"\x00\x14\x00\x28"
_CONNECTION_CLOSE = b"\x00\x0a\x00\x32"

Attack = Callable[["Scene"], None]


@dataclass(slots=True)
class Scene:
    """A broker, and the topics that attacks have made there."""

    victim: Victim
    topics: dict[str, bytes] = field(default_factory=dict)

    def topic(self, peer: KafkaPeer, name: str, **configs: str) -> bytes:
        if name not in self.topics:
            self.topics[name] = peer.create_topic(f"{name}-{next(_NUMBERS)}", **configs)
        return self.topics[name]


def _closed_after(address: tuple[str, int], data: bytes) -> None:
    with Peer(address) as peer:
        peer.send(data)
        assert peer.is_closed(), "the broker listens on"


def declared_array(scene: Scene) -> None:
    """Metadata of two thousand million topics, each of which would take eight bytes in a list: 16 GB."""
    header = encode_request_header(3, 12, 1, "x")
    _closed_after(scene.victim.kafka_address, framed(header + uvarint(2**31 - 1) + bytes(1000)))
    header = encode_request_header(3, 1, 1, "x")
    _closed_after(scene.victim.kafka_address, framed(header + struct.pack(">i", 2**31 - 1) + bytes(1000)))


def wide_array(scene: Scene) -> None:
    """Five million empty topics that are really there: three bytes each, and a hundred as an object."""
    header = encode_request_header(21, 2, 1, "x")
    _closed_after(
        scene.victim.kafka_address, framed(header + uvarint(5_000_001) + b"\x01\x01\x00" * 5_000_000)
    )


def many_tags(scene: Scene) -> None:
    """Twenty million tagged fields in the header of ApiVersions."""
    header = encode_request_header(18, 4, 1, "x")[:-1] + uvarint(20_000_000)
    for there in (30_000, 7_000_000, 20_000_000):
        _closed_after(scene.victim.kafka_address, framed(header + b"\x05\x00" * there))


def long_string(scene: Scene) -> None:
    """A name of 15 MB with one character that makes it 60 MB in memory."""
    name = b"a" * (15 * MIB) + "😀".encode()
    header = encode_request_header(10, 3, 1, "x")
    _closed_after(scene.victim.kafka_address, framed(header + uvarint(len(name) + 1) + name + b"\0\0"))


def frame_lengths(scene: Scene) -> None:
    for length in (2**31 - 1, -1, -(2**31)):
        _closed_after(scene.victim.kafka_address, struct.pack(">i", length) + bytes(100))


def half_frames(scene: Scene) -> None:
    """Frames of 90 MiB that begin, and connections that end in the middle of them."""
    peers = [Peer(scene.victim.kafka_address) for _ in range(50)]
    for peer in peers:
        peer.send(struct.pack(">i", 90 * MIB) + encode_request_header(0, 9, 1, "x") + bytes(20_000))
    for peer in peers:
        peer.socket.close()


def produce(name: str, batch: Callable[[], bytes], codes: set[int], **configs: str) -> Attack:
    def attack(scene: Scene) -> None:
        with KafkaPeer(scene.victim.kafka_address) as peer:
            code = peer.produce(scene.topic(peer, name, **configs), batch())
            assert code in codes, f"error {code}"

    return attack


def scram_iterations(scene: Scene) -> None:
    """A credential that would make every login take hours."""
    with KafkaPeer(scene.victim.kafka_address) as peer:
        upsertions = [
            ScramCredentialUpsertion(
                name="mallory", mechanism=1, iterations=iterations, salt=b"salt", salted_password=bytes(32)
            )
            for iterations in (2**31 - 1, 1, -5)
        ]
        for upsertion in upsertions:
            request = AlterUserScramCredentialsRequest(upsertions=[upsertion])
            answer = peer.ask(request, AlterUserScramCredentialsResponse)
            assert answer.results[0].error_code != 0


def _method(channel: int, index: int, arguments: bytes) -> bytes:
    payload = struct.pack(">I", index) + arguments
    return FRAME.pack(1, channel, len(payload)) + payload + b"\xce"


def _logged_in(scene: Scene) -> Peer:
    """As guest, on "/", with channel 1 open."""
    peer = Peer(scene.victim.amqp_address)
    peer.send(PROTOCOL)
    start = _received_frame(peer)
    assert start[:4] == b"\x00\x0a\x00\x0a"
    plain = b"\0guest\0guest"
    peer.send(
        _method(0, 0x000A000B, bytes(4) + b"\x05PLAIN" + struct.pack(">I", len(plain)) + plain + b"\x05en_US")
    )
    tune = _received_frame(peer)
    peer.send(_method(0, 0x000A001F, tune[4:12]) + _method(0, 0x000A0028, b"\x01/\0\0"))
    assert _received_frame(peer)[:4] == b"\x00\x0a\x00\x29"
    peer.send(_method(1, 0x0014000A, b"\0"))
    assert _received_frame(peer)[:4] == b"\x00\x14\x00\x0b"
    return peer


def _received_frame(peer: Peer) -> bytes:
    _, _, length = FRAME.unpack(peer.receive(FRAME.size))
    return peer.receive(length + 1)[:-1]


def is_refused(peer: Peer) -> bool:
    """Whether the broker says that the connection is to end, or ends it."""
    while len(head := peer.receive(FRAME.size)) == FRAME.size:
        method = peer.receive(FRAME.unpack(head)[2] + 1)
        if method[:4] == _CONNECTION_CLOSE:
            return True
    return True


def amqp_frame_lengths(scene: Scene) -> None:
    """Frames longer than was agreed: a few bytes, and four gigabytes."""
    for length in (131_073, 2**32 - 1):
        with _logged_in(scene) as peer:
            peer.send(FRAME.pack(1, 1, length) + bytes(1000))
            assert is_refused(peer)
    with Peer(scene.victim.amqp_address) as peer:
        peer.send(PROTOCOL + FRAME.pack(1, 0, 2**32 - 1) + bytes(1000))
        assert is_refused(peer)


def amqp_deep_tables(scene: Scene) -> None:
    """Tables in tables, twenty thousand deep, as the arguments of a queue."""
    table = b""
    while len(table) < 120_000:
        table = b"\x01aF" + struct.pack(">I", len(table)) + table if len(table) < 300 else table + table
    deep = b"\x01aF\x00\x00\x00\x00"
    nested = b""
    for _ in range(15_000):
        nested = b"\x01aF" + struct.pack(">I", len(nested)) + nested
        if len(nested) > 100_000:
            break
    for arguments in (nested, deep, table[:120_000]):
        with _logged_in(scene) as peer:
            body = b"\0\0\x01q\x02" + struct.pack(">I", len(arguments)) + arguments
            peer.send(_method(1, 0x0032000A, body))
            assert _received_frame(peer)


def amqp_body_lies(scene: Scene) -> None:
    """Bodies that are longer than their header says, or never come."""
    publish = _method(1, 0x003C0028, b"\0\0\0\x01q\0")
    with _logged_in(scene) as peer:
        header = FRAME.pack(2, 1, 14) + struct.pack(">HHQH", 60, 0, 5, 0) + b"\xce"
        peer.send(publish + header + FRAME.pack(3, 1, 100_000) + bytes(100_000) + b"\xce")
        assert is_refused(peer)
    with _logged_in(scene) as peer:
        header = FRAME.pack(2, 1, 14) + struct.pack(">HHQH", 60, 0, 2**63, 0) + b"\xce"
        peer.send(publish + header)
        assert _received_frame(peer)[:4] == _CHANNEL_CLOSE
    with _logged_in(scene) as peer:
        header = FRAME.pack(2, 1, 14) + struct.pack(">HHQH", 60, 0, 120 * MIB, 0) + b"\xce"
        peer.send(publish + header + FRAME.pack(3, 1, 100_000) + bytes(50_000))


def amqp_many_channels(scene: Scene) -> None:
    """A publish without a body on every channel that there is."""
    with _logged_in(scene) as peer:
        peer.send(b"".join(_method(channel, 0x003C0028, b"\0\0\0\0\0") for channel in range(1, 65_536)))
        assert is_refused(peer)


KAFKA: dict[str, Attack] = {
    "an array of 16 GB": declared_array,
    "five million elements": wide_array,
    "20 million tagged fields": many_tags,
    "a name of 60 MB": long_string,
    "impossible frame lengths": frame_lengths,
    "half frames": half_frames,
    "SCRAM iterations": scram_iterations,
    "2³¹ records in one batch": produce("plain", bombs.lie, {87}),
}
AMQP: dict[str, Attack] = {
    "AMQP frame lengths": amqp_frame_lengths,
    "AMQP deep tables": amqp_deep_tables,
    "AMQP body lies": amqp_body_lies,
    "AMQP messages on all channels": amqp_many_channels,
}


def _bombs(codec: Codec) -> dict[str, Attack]:
    name, other = codec.name.lower(), "gzip" if codec is Codec.ZSTD else "zstd"
    batch = partial(bombs.bomb, codec)
    refused = {MESSAGE_TOO_LARGE}
    return {
        f"{name} bomb, plain topic": produce("plain", batch, {0}),
        f"{name} bomb, compacted topic": produce("compacted", batch, refused, cleanup_policy="compact"),
        f"{name} bomb, topic in {other}": produce(f"in-{other}", batch, refused, compression_type=other),
        f"{name} bomb, open topic": produce("open", batch, refused, compression_type="uncompressed"),
    }


BOMBS: dict[str, Attack] = {name: attack for codec in CODECS for name, attack in _bombs(codec).items()}
BOMBS["400,000 tiny records, compacted topic"] = produce(
    "compacted", lambda: bombs.swarm(Codec.ZSTD), {0, MESSAGE_TOO_LARGE}, cleanup_policy="compact"
)
EVERY: dict[str, Attack] = {**KAFKA, **AMQP, **BOMBS}


NOISE = "control: batches of noise, on new connections"
REQUESTS = "control: small requests, on new connections"
CONTROLS: dict[str, Attack] = {
    NOISE: produce("noise", bombs.noise, {0}),
    REQUESTS: produce("small", lambda: bombs.inflatable(100), {0}),
}
SERVED: dict[str, str] = {
    "gzip bomb, plain topic": NOISE,
    "snappy bomb, plain topic": NOISE,
    "lz4 bomb, plain topic": NOISE,
    "zstd bomb, plain topic": REQUESTS,
}
"""Attacks that nobody is slowed down for, since a plain topic takes them as they are: they are requests like
others. With the control that is like them."""
