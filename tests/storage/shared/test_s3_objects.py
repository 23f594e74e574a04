"""A bucket that refuses, is away, hangs, or answers with errors."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

from posthouse.storage.shared.objects.opening import open_object_store
from posthouse.storage.shared.objects.s3_errors import S3Refusal
from posthouse.storage.shared.objects.store import ObjectMissing, ObjectsAway, ObjectsRefused, ObjectStore
from tests.postgres import free_port
from tests.s3 import S3Server, running_s3


async def listed(store: ObjectStore) -> list[str]:
    return [each.key async for each in store.list("")]


Call = Callable[[ObjectStore], Awaitable[object]]
CALLS: dict[str, Call] = {
    "put": lambda store: store.put("a", b"x"),
    "read": lambda store: store.read("a", 0, 1),
    "delete": lambda store: store.delete(["a"]),
    "list": listed,
}
all_calls = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any the client would ask the machine's cloud for them."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "posthouse")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "posthouse-secret")


@contextlib.asynccontextmanager
async def answering(answer: bytes | None) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that gives every request the same answer, or none and keeps the connection."""
    requests: list[bytes] = []
    connections: dict[asyncio.Task[None] | None, asyncio.StreamWriter] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections[asyncio.current_task()] = writer
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while line := await reader.readline():
                requests.append(line)
                size = 0
                while (header := await reader.readline()).strip():
                    if header.lower().startswith(b"content-length:"):
                        size = int(header.split(b":")[1])
                await reader.readexactly(size)
                if answer is not None:
                    writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"s3://bucket?endpoint=http://127.0.0.1:{port}", requests
    finally:
        server.close()
        for task, writer in connections.items():
            writer.close()
            assert task is not None
            await task


def http(status: str, body: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()


@all_calls
async def test_a_store_that_is_not_there(call: Call) -> None:
    store = open_object_store(f"s3://bucket?endpoint=http://127.0.0.1:{free_port()}", timeout=5)
    began = time.monotonic()
    with pytest.raises(ObjectsAway, match="error sending request") as caught:
        await call(store)
    assert not isinstance(caught.value, ObjectsRefused)
    assert time.monotonic() - began < 5


@all_calls
async def test_a_store_that_does_not_answer(call: Call) -> None:
    async with answering(None) as (url, requests):
        began = time.monotonic()
        with pytest.raises(ObjectsAway, match=r"did not answer in 0.3 s"):
            await call(open_object_store(url, timeout=0.3))
        assert time.monotonic() - began < 3
        assert len(requests) == 1


@all_calls
@pytest.mark.parametrize("status", ["500 Internal Server Error", "503 Slow Down", "429 Too Many Requests"])
async def test_a_store_that_is_overloaded(call: Call, status: str) -> None:
    body = "<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
    async with answering(http(status, body)) as (url, requests):
        with pytest.raises(ObjectsAway, match=r"SlowDown: Please reduce your request rate") as caught:
            await call(open_object_store(url, timeout=5))
        assert not isinstance(caught.value, ObjectsRefused)
        assert 1 <= len(requests) <= 3


@all_calls
async def test_a_store_that_refuses(call: Call) -> None:
    body = "<Error><Code>AccessDenied</Code><Message>Access &#34;denied&#34;</Message></Error>"
    async with answering(http("403 Forbidden", body)) as (url, requests):
        with pytest.raises(ObjectsRefused, match=r'AccessDenied: Access "denied"$'):
            await call(open_object_store(url, timeout=5))
        assert len(requests) == 1


@all_calls
async def test_a_connection_that_breaks_in_an_answer(call: Call) -> None:
    broken = b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\ncontent-range: bytes 0-0/1\r\n\r\nx"
    async with answering(broken) as (url, _requests):
        with pytest.raises(ObjectsAway):
            await call(open_object_store(url, timeout=0.5))


async def test_a_delete_of_several_that_fails_for_one() -> None:
    body = (
        "<DeleteResult><Deleted><Key>a</Key></Deleted>"
        "<Error><Key>b</Key><Code>AccessDenied</Code><Message>no</Message></Error></DeleteResult>"
    )
    async with answering(http("200 OK", body)) as (url, _requests):
        with pytest.raises(ObjectsAway, match="delete 2 objects"):
            await open_object_store(url, timeout=5).delete(["a", "b"])


async def test_a_large_object_has_more_time() -> None:
    async with answering(None) as (url, _requests):
        with pytest.raises(ObjectsAway, match=r"did not answer in 0.3 s"):
            await open_object_store(url, timeout=0.1).put("a", bytes(40 * 1024 * 1024))


async def test_a_check_says_what_to_do() -> None:
    async with answering(http("403 Forbidden")) as (url, _requests):
        with pytest.raises(ObjectsRefused, match=r"cannot put objects in s3://bucket .*AWS_ACCESS_KEY_ID"):
            await open_object_store(url, timeout=5).check()


def test_an_error_without_words() -> None:
    assert S3Refusal.of(ValueError()).sentence == "ValueError"
    assert not S3Refusal.of(ValueError()).is_final


class TestRealServer:
    @pytest.fixture
    def own_server(self) -> Iterator[S3Server]:
        with running_s3() as server:
            yield server

    @all_calls
    async def test_no_bucket(self, s3_server: S3Server, call: Call) -> None:
        with pytest.raises(ObjectsRefused, match="NoSuchBucket"):
            await call(open_object_store(s3_server.url(bucket="another"), timeout=5))

    @all_calls
    async def test_wrong_credentials(
        self, s3_server: S3Server, call: Call, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        with pytest.raises(ObjectsRefused, match="SignatureDoesNotMatch"):
            await call(open_object_store(s3_server.url(), timeout=5))

    async def test_a_server_that_pauses(self, own_server: S3Server) -> None:
        store = open_object_store(own_server.url("a"), timeout=1)
        await store.put("1", b"one")
        own_server.pause()
        for call in CALLS.values():
            with pytest.raises(ObjectsAway, match="did not answer"):
                await call(store)
        own_server.resume()
        assert await store.read("1", 0, 3) == b"one"

    async def test_a_server_that_dies(self, own_server: S3Server) -> None:
        store = open_object_store(own_server.url("a"), timeout=5)
        await store.put("1", b"one")
        own_server.kill()
        with pytest.raises(ObjectsAway):
            await store.read("1", 0, 3)
        own_server.start()
        assert await store.read("1", 0, 3) == b"one"

    async def test_two_prefixes_know_nothing_of_each_other(self, s3_server: S3Server, name: str) -> None:
        one = open_object_store(s3_server.url(f"{name}/one"), timeout=5)
        other = open_object_store(s3_server.url(f"{name}/other"), timeout=5)
        await one.put("a", b"x")
        assert await listed(other) == []
        with pytest.raises(ObjectMissing):
            await other.read("a", 0, 1)
