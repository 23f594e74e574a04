"""Ranges of objects by HTTP: connections are used again, and what goes wrong has a name."""

import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from posthouse.spark.segments import signed_objects
from posthouse.spark.segments.errors import ObjectsAway
from posthouse.spark.segments.signed_objects import SignedObjects
from tests.certificates import Authority
from tests.spark.segments.object_server import ObjectServer, object_server

CONTENT = bytes(range(256)) * 100


@pytest.fixture
def server(objects: ObjectServer) -> ObjectServer:
    (objects.directory / "key").write_bytes(CONTENT)
    return objects


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[SignedObjects]:
    monkeypatch.setattr(signed_objects, "_PAUSES", (0.0,))
    made = SignedObjects(timeout=30)
    yield made
    made.close()


def test_a_connection_is_used_again(server: ObjectServer, client: SignedObjects) -> None:
    for start in range(10):
        assert client.read(server.address("key"), start, 1000) == CONTENT[start : start + 1000]
    assert server.connections == 1


def test_a_server_that_hangs_up_after_each_answer(server: ObjectServer, client: SignedObjects) -> None:
    server.is_hanging_up = True
    for start in range(3):
        assert client.read(server.address("key"), start, 10) == CONTENT[start : start + 10]
    assert server.connections >= 3


def test_threads_do_not_get_in_the_way_of_each_other(server: ObjectServer, client: SignedObjects) -> None:
    def read(start: int) -> bytes:
        return bytes(client.read(server.address("key"), start, 500))

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(read, range(200)))
    assert found == [CONTENT[start : start + 500] for start in range(200)]
    assert server.connections <= 4


def test_no_read_follows_a_close(server: ObjectServer, client: SignedObjects) -> None:
    client.close()
    with pytest.raises(ObjectsAway):
        client.read(server.address("key"), 0, 10)


def test_tls(authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the authorities of the system, or those in SSL_CERT_FILE."""
    identity = authority.issue("127.0.0.1")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(identity.certificate, identity.key)
    (tmp_path / "key").write_bytes(CONTENT)
    with object_server(tmp_path, tls) as server:
        signed_objects._trust.cache_clear()
        with pytest.raises(ObjectsAway, match="certificate verify failed"):
            SignedObjects(timeout=30).read(server.address("key"), 0, 10)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
        signed_objects._trust.cache_clear()
        assert SignedObjects(timeout=30).read(server.address("key"), 5, 10) == CONTENT[5:15]
    signed_objects._trust.cache_clear()
