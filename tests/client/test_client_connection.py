"""What the client says when the other side is gone, silent, too old, or something else altogether."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from struct import pack

import pytest

from posthouse.client import Client
from posthouse.client.addresses import Node, parse_bootstrap
from posthouse.client.connection import BrokerConnection
from posthouse.client.errors import BadArgument, BrokerSilent, BrokerUnreachable, IncompatibleBroker
from posthouse.protocols.kafka.codec.generated.api_versions import ApiVersion, ApiVersionsResponse
from posthouse.protocols.kafka.codec.generated.metadata import MetadataRequest, MetadataResponse
from posthouse.protocols.kafka.codec.headers import decode_request_header, response_frame
from posthouse.protocols.kafka.codec.registry import APIS, encode_response

Answer = Callable[[int, int, int], bytes]
"""(API, version, correlation id) → bytes to send back."""


@contextmanager
def fake_broker(answer: Answer) -> Iterator[Node]:
    """Accepts one connection and answers every request with whatever `answer` makes of it."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def serve() -> None:
            connected, _ = server.accept()
            # A client that gives up resets the connection; that is its answer, not our failure.
            with suppress(ConnectionError), closing(connected), closing(connected.makefile("rb")) as stream:
                while size := stream.read(4):
                    frame = memoryview(stream.read(int.from_bytes(size, "big")))
                    header, _ = decode_request_header(frame)
                    reply = answer(header.api_key, header.api_version, header.correlation_id)
                    if not reply:
                        return
                    connected.sendall(reply)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield Node(*server.getsockname())
        finally:
            server.close()
            thread.join(5)


def versions_answer(**overrides: tuple[int, int]) -> Answer:
    """A broker that has every API in our versions, but for the overrides; it answers nothing else."""
    ranges = {api.name: (api.min_version, api.max_version) for api in APIS.values()} | overrides

    def answer(key: int, version: int, correlation: int) -> bytes:
        if key != 18:
            return b""
        served = [
            ApiVersion(api_key=api.key, min_version=ranges[api.name][0], max_version=ranges[api.name][1])
            for api in APIS.values()
            if ranges[api.name][1] >= 0
        ]
        body = encode_response(key, version, ApiVersionsResponse(api_keys=served))
        return b"".join(response_frame(key, version, correlation, body))

    return answer


def list_topics(node: Node) -> None:
    with Client(str(node), timeout=5) as client:
        client.topics()


def test_nobody_answers() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(BrokerUnreachable) as caught:
        Client(f"127.0.0.1:{port}").topics()
    assert str(caught.value) == (
        f"no broker answers at 127.0.0.1:{port}; start one with 'posthouse serve' or give --bootstrap"
    )


def test_the_first_of_several_addresses_that_answers_is_used(client: Client, topic: str) -> None:
    [_, port] = str(client._cluster._seeds[0]).split(":")
    with Client(f"127.0.0.1:1,127.0.0.1:{port}") as second:
        assert second.create_topic(topic, partitions=2) == 2


def test_a_broker_without_the_version_we_need() -> None:
    with fake_broker(versions_answer(Metadata=(0, 9))) as node, pytest.raises(IncompatibleBroker) as caught:
        list_topics(node)
    assert str(caught.value) == (
        f"this needs version 13 of Kafka's Metadata and the broker at {node} has only versions 0 to 9; "
        "use a newer broker"
    )


def test_a_broker_without_the_api_at_all() -> None:
    with fake_broker(versions_answer(Metadata=(0, -1))) as node, pytest.raises(IncompatibleBroker) as caught:
        list_topics(node)
    assert str(caught.value).endswith("does not have it; use a newer broker")


def test_a_broker_that_does_not_know_our_first_question() -> None:
    def answer(key: int, version: int, correlation: int) -> bytes:
        return pack(">iihi", 10, correlation, 35, 0)

    with fake_broker(answer) as node, pytest.raises(IncompatibleBroker, match="too old for this client"):
        list_topics(node)


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        pack(">ii", 4, 12345),
        pack(">i", -1),
        pack(">iih", 6, 0, 0),
    ],
    ids=["HTTP", "another correlation", "negative size", "cut short"],
)
def test_something_else_answers(reply: bytes) -> None:
    with fake_broker(lambda *_: reply) as node, pytest.raises(IncompatibleBroker) as caught:
        list_topics(node)
    assert "does not speak the Kafka protocol; give another address with --bootstrap" in str(caught.value)


def test_the_connection_is_lost_while_we_wait() -> None:
    with fake_broker(versions_answer()) as node, pytest.raises(BrokerUnreachable, match="was lost"):
        list_topics(node)


def test_no_answer_in_time() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        address = "{}:{}".format(*server.getsockname())
        with pytest.raises(BrokerSilent, match=r"did not answer in 0\.05 s"):
            Client(address, timeout=0.05).topics()


def test_answers_come_back_in_the_order_of_requests(client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=3)
    connection = BrokerConnection(client._cluster._seeds[0], timeout=5)
    with closing(connection):
        for _ in range(5):
            connection.send(MetadataRequest(topics=None, allow_auto_topic_creation=False))
        answers = [connection.receive(MetadataResponse) for _ in range(5)]
    assert all(topic in [each.name for each in answer.topics] for answer in answers)


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("h:1", [Node("h", 1)]),
        ("h", [Node("h", 9092)]),
        ("a:1, b:2", [Node("a", 1), Node("b", 2)]),
        ("[::1]:5", [Node("::1", 5)]),
        ("[::1]", [Node("::1", 9092)]),
    ],
)
def test_bootstrap_addresses(text: str, nodes: list[Node]) -> None:
    assert parse_bootstrap(text) == nodes


@pytest.mark.parametrize("text", ["", ",", "h:", "h:x", ":5", "h:0", "h:70000"])
def test_what_is_no_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadArgument, match="write HOST:PORT, for example"):
        parse_bootstrap(text)
