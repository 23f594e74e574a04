"""The broker's secret on a full disk: the broker starts, so that topics can be deleted to make room."""

from pathlib import Path

import pytest

from posthouse.broker.broker import Broker
from posthouse.broker.topics import NewTopic
from posthouse.model.clock import ManualClock
from posthouse.model.errors import StorageFull
from posthouse.settings import Authentication, Settings
from posthouse.storage.spaces import Space
from tests.broker.transactions.producers import Ledger


async def started(ledger: Ledger, password: Path | None = None) -> Broker:
    settings = Settings(memory=True, authentication=Authentication.REQUIRED, admin_password_file=password)
    broker = Broker(ledger, settings, ManualClock())
    await broker.start()
    await broker.coordinate()
    return broker


async def test_a_directory_without_a_secret_on_a_full_disk(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    password = tmp_path / "password"
    password.touch(0o600)
    password.write_text("nobody-guesses-this")
    ledger = Ledger(ManualClock())
    before = await started(ledger, password)
    await before.create_topics([NewTopic(name="old")])
    await before.stop()
    del ledger._state[Space.SECRETS]  # as a version before secrets left it
    ledger.failure = StorageFull("no space left")
    broker = await started(ledger)
    assert "producers get no producer ids" in caplog.text
    ids = broker.transactions.producer_ids
    for _ in range(2):
        with pytest.raises(StorageFull):
            await ids.take("ann")
    with pytest.raises(StorageFull):
        await broker.transactions.init_producer("tx", 1000)
    assert Space.SECRETS not in ledger._state
    await broker.delete_topics([broker.topic("old")])
    ledger.failure = None
    bound = await ids.take("ann")
    await broker.stop()
    again = await started(ledger)
    ids = again.transactions.producer_ids
    assert ids.belongs_to(bound, "ann") and not ids.belongs_to(bound, "ben")
    await again.stop()


async def test_a_secret_is_stored_once(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.touch(0o600)
    password.write_text("nobody-guesses-this")
    ledger = Ledger(ManualClock())
    broker = await started(ledger, password)
    stored = ledger._state[Space.SECRETS].copy()
    for _ in range(3):
        await broker.transactions.producer_ids.take("ann")
    await broker.stop()
    puts = [
        each for commit in ledger.commits for each in commit if getattr(each, "space", 0) is Space.SECRETS
    ]
    assert len(puts) == 1 and ledger._state[Space.SECRETS] == stored
