"""The client for the JSON API: pages, logins, TLS, and sentences for what fails."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from posthouse.client import Client, Security
from posthouse.client.admin_client import AdminClient, part
from posthouse.client.errors import (
    BadArgument,
    BrokerSilent,
    BrokerUnreachable,
    CallRefused,
    IncompatibleBroker,
    LoginRefused,
    NotTrusted,
)
from posthouse.testing import ThreadBroker
from tests.certificates import Authority
from tests.tls_brokers import tls_broker

ADMIN = "admin's own"
TLS_HANDSHAKE = b"\x16"
"""The first byte of every connection with TLS."""


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[ThreadBroker]:
    with tls_broker(authority, {"admin": ADMIN}) as running:
        yield running


LOGIN = Security(user="admin", password=ADMIN)


def test_a_login(broker: ThreadBroker) -> None:
    with AdminClient(broker.admin, security=LOGIN) as client:
        assert client.get("/v1/overview")["ready"] is True
    with AdminClient(broker.admin) as client, pytest.raises(LoginRefused, match="give --user, or use a pr"):
        client.get("/v1/overview")
    wrong = Security(user="admin", password="wrong")
    with AdminClient(broker.admin, security=wrong) as client, pytest.raises(LoginRefused) as caught:
        client.get("/v1/overview")
    assert "--user" not in str(caught.value)


def test_every_page_is_read(broker: ThreadBroker) -> None:
    with Client(broker.kafka, security=LOGIN) as kafka:
        for number in range(5):
            kafka.create_topic(f"paged-{number}", partitions=1)
    with AdminClient(broker.admin, security=LOGIN) as client:
        names = [each["name"] for each in client.items("/v1/topics", search="paged-")]
        assert names == [f"paged-{number}" for number in range(5)]
        assert len(list(client.items("/v1/topics", search="paged-", most=3))) == 3


def test_pages_go_on_where_the_one_before_ended(
    broker: ThreadBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("posthouse.client.admin_client._PAGE", 2)
    names = [f"turned-{number}" for number in range(5)]
    with AdminClient(broker.admin, security=LOGIN) as client:
        for name in names:
            assert client.post("/v1/topics", {"name": name, "partitions": 1})["name"] == name
        found = [each["name"] for each in client.items("/v1/topics", search="turned-")]
        assert found == names
        assert client.delete(f"/v1/topics/{part('turned-0')}") is None


def test_a_refusal_is_the_sentence_of_the_problem(broker: ThreadBroker) -> None:
    with AdminClient(broker.admin, security=LOGIN) as client, pytest.raises(CallRefused) as caught:
        client.get(f"/v1/topics/{part('no such/topic')}")
    assert caught.value.status in (400, 404) and "no such/topic" in str(caught.value)


def test_tls(broker: ThreadBroker, authority: Authority) -> None:
    security = Security(ca=authority.file, user="admin", password=ADMIN)
    encrypted = broker.address("admin_tls")
    for address in (encrypted, f"https://{encrypted}/", f"http://{broker.admin}"):
        with AdminClient(address, security=security) as client:
            assert client.get("/v1/overview")["ready"] is True
    failures: tuple[tuple[str, Security, type[Exception], str], ...] = (
        (encrypted, LOGIN, IncompatibleBroker, "give --tls or --ca FILE if it uses TLS there"),
        (f"https://{encrypted}", LOGIN, NotTrusted, "no trusted authority has signed"),
        (broker.admin, security, IncompatibleBroker, "does not speak TLS"),
    )
    for address, login, kind, sentence in failures:
        with AdminClient(address, security=login) as client, pytest.raises(kind, match=sentence):
            client.get("/v1/overview")


def test_a_connection_after_one_that_was_closed_is_encrypted_too(authority: Authority) -> None:
    identity = authority.issue()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(identity.certificate, identity.key)
    first_bytes: list[bytes] = []

    def serve(server: socket.socket) -> None:
        for _ in range(2):
            plain, _ = server.accept()
            with plain:
                first_bytes.append(plain.recv(65536, socket.MSG_PEEK))
                if not first_bytes[-1].startswith(TLS_HANDSHAKE):
                    return
                with tls.wrap_socket(plain, server_side=True) as encrypted:
                    encrypted.recv(65536)
                    encrypted.sendall(
                        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 4\r\n\r\ntrue"
                    )

    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        security = Security(ca=authority.file, user="admin", password=ADMIN)
        with AdminClient(f"127.0.0.1:{server.getsockname()[1]}", security=security) as client:
            assert client.get("/v1/overview") is True
            assert client.delete("/v1/topics/orders") is True
        thread.join()
    assert [each[:1] for each in first_bytes] == [TLS_HANDSHAKE, TLS_HANDSHAKE], first_bytes


def test_nobody_there() -> None:
    with AdminClient("127.0.0.1:1") as client, pytest.raises(BrokerUnreachable, match="or give --admin"):
        client.get("/v1/overview")
    with AdminClient("no-such-host.invalid") as client, pytest.raises(BrokerUnreachable, match="no host"):
        client.get("/v1/overview")
    with pytest.raises(BadArgument, match=r"127\.0\.0\.1:15672"):
        AdminClient("x:y")


@pytest.mark.parametrize("answer", [b"", b"\0\0\0\4abcd", b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc"])
def test_something_else_there(answer: bytes) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]

        def serve() -> None:
            connected, _ = server.accept()
            with connected:
                connected.recv(65536)
                connected.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with AdminClient(f"127.0.0.1:{port}") as client, pytest.raises(IncompatibleBroker, match="HTTP"):
            client.get("/v1/overview")
        thread.join()


def test_a_connection_that_was_closed_while_it_was_idle(broker: ThreadBroker) -> None:
    with AdminClient(broker.admin, security=LOGIN) as client:
        client.get("/v1/overview")
        assert client._connection is not None and client._connection.sock is not None
        client._connection.sock.shutdown(socket.SHUT_RDWR)
        assert client.get("/v1/overview")["ready"] is True


def test_a_connection_that_was_idle_for_long_is_not_used_again(
    broker: ThreadBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with AdminClient(broker.admin, security=LOGIN) as client:
        client.get("/v1/overview")
        monkeypatch.setattr("posthouse.client.admin_client._LONGEST_IDLE", 0.0)
        assert client._connection is not None and client._connection.sock is not None
        client._connection.sock.shutdown(socket.SHUT_RDWR)
        assert client.post("/v1/topics", {"name": "after-idling", "partitions": 1})["name"] == "after-idling"


def test_a_change_is_not_sent_twice(broker: ThreadBroker) -> None:
    with AdminClient(broker.admin, security=LOGIN) as client:
        client.get("/v1/overview")
        assert client._connection is not None and client._connection.sock is not None
        client._connection.sock.shutdown(socket.SHUT_RDWR)
        with pytest.raises(BrokerUnreachable, match="closed the connection before it answered"):
            client.post("/v1/topics", {"name": "never", "partitions": 1})


def test_silence() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with AdminClient(address, timeout=0.2) as client, pytest.raises(BrokerSilent):
            client.get("/v1/overview")
