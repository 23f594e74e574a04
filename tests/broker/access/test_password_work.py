"""Passwords are checked one after the other, and nobody waits for all of somebody else's."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from posthouse.broker.access import password_work
from posthouse.broker.access.password_work import PasswordWork
from posthouse.model.errors import LoginFailed

SECONDS = 60


@pytest.fixture
def work() -> Iterator[PasswordWork]:
    made = PasswordWork()
    yield made
    made.close()


class Job:
    def __init__(self, name: str, done: list[str], go_on: threading.Event | None = None) -> None:
        self._name = name
        self._done = done
        self._go_on = go_on

    def __call__(self) -> str:
        if self._go_on is not None:
            self._go_on.wait(SECONDS)
        self._done.append(self._name)
        return self._name


async def test_sources_take_turns(work: PasswordWork) -> None:
    done: list[str] = []
    go_on = threading.Event()
    flood = [asyncio.ensure_future(work.do("a", Job(f"a{number}", done, go_on))) for number in range(50)]
    await asyncio.sleep(0)
    others = [asyncio.ensure_future(work.do(name, Job(name, done))) for name in ("b", "c")]
    await asyncio.sleep(0)
    go_on.set()
    async with asyncio.timeout(SECONDS):
        assert await asyncio.gather(*others) == ["b", "c"]
        await asyncio.gather(*flood)
    assert done.index("b") <= 2 and done.index("c") <= 3
    assert [each for each in done if each[0] == "a"] == [f"a{number}" for number in range(50)]


async def test_whoever_has_gone_is_not_worked_for(work: PasswordWork) -> None:
    done: list[str] = []
    go_on = threading.Event()
    first, gone, last = (
        asyncio.ensure_future(work.do("a", Job(name, done, go_on))) for name in ("first", "gone", "last")
    )
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    go_on.set()
    async with asyncio.timeout(SECONDS):
        await asyncio.gather(first, last)
    assert done == ["first", "last"]


async def test_errors_are_told(work: PasswordWork) -> None:
    def fail() -> None:
        raise LoginFailed("why")

    with pytest.raises(LoginFailed, match="why"):
        await work.do("a", fail)
    assert await work.do("a", lambda: 1) == 1


async def test_too_much(work: PasswordWork, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(password_work, "_MOST_WAITING", 2)
    go_on = threading.Event()
    waiting = [asyncio.ensure_future(work.do("a", Job("", [], go_on))) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(LoginFailed, match="too many"):
        await work.do("b", Job("", []))
    go_on.set()
    await asyncio.gather(*waiting)


async def test_those_who_wait_are_let_go_at_the_end(work: PasswordWork) -> None:
    go_on = threading.Event()
    waiting = [asyncio.ensure_future(work.do("a", Job("", [], go_on))) for _ in range(2)]
    await asyncio.sleep(0)
    work.close()
    go_on.set()
    async with asyncio.timeout(SECONDS):
        results = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(results[1], asyncio.CancelledError)
