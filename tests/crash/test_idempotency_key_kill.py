"""Kills under requests with idempotency keys, and answers that get lost: every request counts once, with the
offsets that it was told."""

import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from tests.crash.served import broker
from tests.stored import IS_SHARED

PATH = "/v1/topics/orders/records"
WORKERS = 4
PARTITIONS = 3
DEADLINE = 120.0
LOST = 0.3
"""Of the requests whose first answer is thrown away."""
AGAIN = frozenset({500, 503})
"""After these it is not known what became of the request."""


def records_of(name: str) -> list[dict[str, Any]]:
    return [
        {"key": f"{name}/a", "value": f"{name}/1"},
        {"value": f"{name}/2"},
        {"key": f"{name}/b", "value": f"{name}/3"},
    ]


class Load:
    """Each worker sends one request after the other, and each until it is answered."""

    def __init__(self, *, has_keys: bool) -> None:
        self._has_keys = has_keys
        self.answers: dict[str, list[tuple[int, int]]] = {}
        self.lost = 0
        """Answers that were thrown away."""
        self.admin = ""
        self._ends = threading.Event()
        self._workers: list[Future[None]] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        with ThreadPoolExecutor(WORKERS) as pool:
            self._workers = [pool.submit(self._work, each) for each in range(WORKERS)]
            try:
                yield
            finally:
                self._ends.set()
        for each in self._workers:
            each.result()

    def wait_for(self, count: int) -> None:
        deadline = time.monotonic() + DEADLINE
        while len(self.answers) < count:
            for each in self._workers:
                assert not each.done(), each.exception()
            assert time.monotonic() < deadline, f"{len(self.answers)} of {count} requests were answered"
            time.sleep(0.005)

    def _work(self, worker: int) -> None:
        random, number = Random(worker), 0
        while not self._ends.is_set():
            name = f"{worker}-{number}"
            if random.random() < LOST:
                self._send_and_leave(name)
            self.answers[name] = self.answer(name)
            number += 1

    def answer(self, name: str) -> list[tuple[int, int]]:
        """Of the request of this name, which is repeated until it has one."""
        deadline = time.monotonic() + DEADLINE
        while True:
            assert time.monotonic() < deadline, name
            try:
                found = httpx.post(
                    f"http://{self.admin}{PATH}",
                    json=records_of(name),
                    headers=self._headers(name),
                    timeout=30,
                )
            except httpx.TransportError:
                time.sleep(0.01)  # it was killed, and its successor is not there yet
                continue
            if found.status_code not in AGAIN:
                break
            time.sleep(0.01)
        assert found.status_code == 200, found.text
        return [(each["partition"], each["offset"]) for each in found.json()["records"]]

    def _headers(self, name: str) -> Mapping[str, str]:
        return {"idempotency-key": name} if self._has_keys else {}

    def _send_and_leave(self, name: str) -> None:
        """The answer is not waited for."""
        host, _, port = self.admin.rpartition(":")
        request = httpx.Request(
            "POST", f"http://{self.admin}{PATH}", json=records_of(name), headers=self._headers(name)
        )
        head = "".join(f"{key}: {value}\r\n" for key, value in request.headers.items())
        try:
            with socket.create_connection((host, int(port)), timeout=30) as connection:
                connection.sendall(f"POST {PATH} HTTP/1.1\r\n{head}\r\n".encode() + request.content)
                connection.shutdown(socket.SHUT_WR)
        except OSError:
            return
        self.lost += 1


def stored(admin: str) -> dict[tuple[int, int], str]:
    """Values by place."""
    found: dict[tuple[int, int], str] = {}
    query: dict[str, Any] | None = {"timestamp": 0, "limit": 1000, "max_bytes": 4_000_000}
    while query is not None:
        answer = httpx.get(f"http://{admin}{PATH}", params=query, timeout=60).json()
        found |= {(each["partition"], each["offset"]): each["value"]["data"] for each in answer["records"]}
        query = None if answer["next"] is None else {**query, "after": answer["next"]}
    return found


def create(admin: str) -> None:
    body = {"name": "orders", "partitions": PARTITIONS}
    httpx.post(f"http://{admin}/v1/topics", json=body, timeout=30).raise_for_status()


@pytest.mark.timeout(600 if IS_SHARED else 300)
@pytest.mark.parametrize("rounds", [3, pytest.param(40, marks=pytest.mark.long)])
def test_every_request_counts_once(tmp_path: Path, rounds: int) -> None:
    random, load = Random(13), Load(has_keys=True)
    with ExitStack() as processes:
        process = processes.enter_context(broker(tmp_path))
        create(process.admin)
        load.admin = process.admin
        with load.running():
            for _ in range(rounds):
                load.wait_for(len(load.answers) + random.randrange(5, 30))
                process.kill()
                process = processes.enter_context(broker(tmp_path))
                load.admin = process.admin
            load.wait_for(len(load.answers) + 10)
        assert load.lost > 0
        values = stored(process.admin)
        assert Counter(values.values()) == Counter(
            each["value"] for name in load.answers for each in records_of(name)
        )
        for name, places in load.answers.items():
            assert [values[place] for place in places] == [each["value"] for each in records_of(name)]
        for name in list(load.answers)[:: max(len(load.answers) // 20, 1)]:
            assert load.answer(name) == load.answers[name], "the same answer after all restarts"
        assert stored(process.admin) == values


@pytest.mark.timeout(300)
def test_without_keys_the_check_finds_doubles(tmp_path: Path) -> None:
    load = Load(has_keys=False)
    with broker(tmp_path) as process:
        create(process.admin)
        load.admin = process.admin
        with load.running():
            load.wait_for(20)
        assert load.lost > 0
        assert max(Counter(stored(process.admin).values()).values()) > 1
