"""How full the disk is: asked of a thread of its own, and never in the way."""

import asyncio
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from posthouse.storage.files.system.usage import UsageProbe
from tests.storage.stores import opened


async def test_the_condition_of_a_good_storage(tmp_path: Path) -> None:
    async with opened(tmp_path / "data") as storage:
        condition = await storage.condition()
        assert condition.refusal is None and condition.has_reserve
        assert condition.free_bytes and condition.total_bytes and condition.journal_bytes


async def test_a_directory_that_is_gone(tmp_path: Path) -> None:
    async with opened(tmp_path / "data") as storage:
        (tmp_path / "data").rename(tmp_path / "elsewhere")
        condition = await storage.condition()
        (tmp_path / "elsewhere").rename(tmp_path / "data")
        assert condition.refusal is not None
        assert condition.free_bytes is None


async def test_a_disk_that_hangs_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answer = 0, threading.Event()
    real = shutil.disk_usage

    def hang(path: Any) -> Any:
        nonlocal asked
        asked += 1
        answer.wait(60)
        return real(path)

    monkeypatch.setattr("posthouse.storage.files.system.usage.shutil.disk_usage", hang)
    (tmp_path / "journal").mkdir()
    probe = UsageProbe(tmp_path, seconds=0.05)
    looks = await asyncio.gather(*(probe.look() for _ in range(20)))
    assert {each.failure for each in looks} == {f"the disk of {tmp_path} does not answer"}
    assert asked == 1
    patient = asyncio.create_task(probe.look())
    probe._seconds = 60
    again = asyncio.create_task(probe.look())
    answer.set()
    assert (await again).failure is None
    await patient
    assert asked == 1
