"""Which logs a broker keeps, and that a scope is released behind the steps in it."""

import asyncio
from dataclasses import replace

import pytest

from posthouse.model.scopes import COORDINATOR, GROUPS, HOUSEKEEPING, NAMESPACES, shard_of_log
from posthouse.storage.shared.housekeeping.kept_logs import KeptLogs
from tests.storage.batches import make_topic
from tests.storage.shared.opened import TestLease

LOG = 1
SCOPE = HOUSEKEEPING[shard_of_log(LOG)]
OTHER = next(number for number in range(2, 100) if shard_of_log(number) != shard_of_log(LOG))


@pytest.fixture
def lease() -> TestLease:
    return TestLease()


@pytest.fixture
def kept(lease: TestLease) -> KeptLogs:
    made = KeptLogs(lease)
    made.take(SCOPE)
    return made


async def test_logs_of_scopes_that_were_taken(kept: KeptLogs) -> None:
    assert kept.keeps(LOG) and not kept.keeps(OTHER)
    assert (kept.shards, kept.share) == ([shard_of_log(LOG)], 1 / 16)
    await kept.release(SCOPE)
    assert not kept.keeps(LOG) and not kept.holds(SCOPE) and kept.shards == []
    await kept.release(SCOPE)
    with pytest.raises(ValueError, match="groups/00 is not about housekeeping"):
        kept.take(GROUPS[0])


def test_logs_of_namespaces_are_cleaned_by_the_holder_of_their_scope(
    kept: KeptLogs, lease: TestLease
) -> None:
    topic = make_topic()
    source = replace(topic, scope=NAMESPACES[3])
    assert kept.cleans(LOG, topic) and not kept.cleans(OTHER, topic)
    assert not kept.cleans(LOG, source) and kept.namespaces == []
    lease.scopes |= {COORDINATOR, NAMESPACES[2]}
    assert not kept.cleans(LOG, source) and kept.namespaces == [2]
    lease.scopes.add(NAMESPACES[3])
    assert kept.cleans(LOG, source) and kept.cleans(OTHER, source) and not kept.cleans(OTHER, topic)
    assert kept.keeps(LOG) and not kept.keeps(OTHER), "bytes are moved by who keeps house"
    assert kept.namespaces == [2, 3]


async def test_a_release_waits_for_all_steps_of_the_scope(kept: KeptLogs) -> None:
    with kept.step([OTHER]):
        with kept.step([LOG, OTHER]):
            with kept.step([LOG]):
                releasing = asyncio.create_task(kept.release(SCOPE))
                await asyncio.sleep(0)
                assert not kept.keeps(LOG), "no step begins any more"
            await asyncio.sleep(0)
            assert not releasing.done()
        await releasing


async def test_a_release_does_not_wait_for_ever(lease: TestLease, caplog: pytest.LogCaptureFixture) -> None:
    kept = KeptLogs(lease, step_seconds=0.01)
    kept.take(SCOPE)
    with caplog.at_level("INFO"), kept.step([LOG]):
        await kept.release(SCOPE)
    assert f"{SCOPE} is released while housekeeping still works on its logs" in caplog.text
    await kept.release(SCOPE)
