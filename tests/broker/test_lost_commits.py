"""Brokers after the journal was damaged: what segments and catalog still have is used, and nothing hangs."""

import shutil
from pathlib import Path

import pytest

from posthouse.broker.access.control import AccessControl
from posthouse.broker.queues.queue import Queue
from posthouse.broker.transactions.producer_ids import END, LOST, ProducerIds
from posthouse.model.clock import ManualClock, SystemClock
from posthouse.model.errors import ProducerFenced, Unavailable
from posthouse.storage.files.engine import FileStorage
from posthouse.storage.files.journal.journal import FRAME_HEADER, journal_files
from posthouse.storage.files.journal.reader import frames_in
from posthouse.storage.files.system.disk import OsDisk
from posthouse.storage.memory.engine import MemoryStorage
from tests.broker.queues.rig import running, values_of
from tests.broker.transactions.producers import Bench, Client
from tests.storage.stores import crash_copy, file_storage


def zero_frames(data: Path, first: int, behind: int | None = None) -> None:
    """Take out the frames from the one with this index on, and before the one with the other."""
    [file] = journal_files(OsDisk(), str(data / "journal"))
    positions = [position for position, _, _ in frames_in(OsDisk(), file)]
    content = bytearray(Path(file.path).read_bytes())
    last = positions[-1] if behind is None else positions[behind - 1]
    length = FRAME_HEADER.unpack_from(content, last)[3]
    end = last + FRAME_HEADER.size + length
    content[positions[first] : end] = bytes(end - positions[first])
    Path(file.path).write_bytes(content)


class Files:
    """A transactional client, and a broker on files that is killed and damaged."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.clock = ManualClock()

    async def start(self, name: str) -> Bench:
        self.storage = file_storage(self.place / name, clock=self.clock)
        self.bench = Bench(self.storage, self.clock)
        await self.bench.start()
        return self.bench

    @property
    def frames(self) -> int:
        """How many the journal has, which is still in its first file."""
        return self.storage._checkpoints.frame

    async def killed(self, *, damaged_from: int) -> Bench:
        """A broker on what is left when the frames behind the first `damaged_from` are gone."""
        copy = await crash_copy(self.storage, self.place / "killed")
        zero_frames(copy, damaged_from)
        await self.bench.close()
        return await self.start("killed")


@pytest.mark.parametrize("epoch_per_transaction", [False, True], ids=["adds partitions", "bumps epochs"])
async def test_a_transaction_whose_state_is_lost_goes_on(tmp_path: Path, epoch_per_transaction: bool) -> None:
    files = Files(tmp_path)
    client = Client(await files.start("data"), epoch_per_transaction=epoch_per_transaction)
    await client.init()
    frames = files.frames
    await client.write(b"a")
    await client.write(b"b", partition=1)
    client.bench = await files.killed(damaged_from=frames)
    assert files.storage.has_lost_commits
    client.lose_connection()
    assert [client.bench.stable(index) for index in (0, 1)] == [0, 0]
    await client.write(b"c")
    await client.end()
    assert await client.bench.committed() == [b"a", b"c"]
    assert await client.bench.committed(1) == [b"b"]
    assert [client.bench.stable(index) for index in (0, 1)] == [3, 2]
    await files.bench.close()


async def test_a_transaction_of_a_producer_that_is_lost_is_aborted(tmp_path: Path) -> None:
    """Not even its transactional id is known: the broker ends it, or readers would wait for ever."""
    files = Files(tmp_path)
    client = Client(await files.start("data"), epoch_per_transaction=True)
    frames = files.frames
    await client.init()
    await client.write(b"a")
    client.bench = await files.killed(damaged_from=frames)
    assert await client.bench.committed() == []
    assert client.bench.stable() == 2
    known = files.storage.producers(client.partition(0))[client.producer.producer_id]
    assert known.epoch > client.producer.epoch, "the producer is fenced"
    await files.bench.close()


async def test_a_transaction_of_an_epoch_that_is_lost_is_aborted(tmp_path: Path) -> None:
    files = Files(tmp_path)
    client = Client(await files.start("data"), epoch_per_transaction=True)
    await client.init()
    await client.write(b"a")
    frames = files.frames
    await client.end()
    await client.write(b"b")
    client.bench = await files.killed(damaged_from=frames)
    client.lose_connection()
    with pytest.raises(ProducerFenced):
        await client.write(b"c")
    successor = Client(client.bench, epoch_per_transaction=True)
    await successor.init()
    await successor.write(b"d")
    await successor.end()
    assert await client.bench.committed() == [b"a", b"d"]
    await files.bench.close()


async def test_a_prepared_transaction_outlives_what_is_lost_behind_it(tmp_path: Path) -> None:
    files = Files(tmp_path)
    client = Client(await files.start("data"), epoch_per_transaction=True)
    await client.init(two_phase=True)
    await client.write(b"a")
    written = await client.resume(expected=client.producer)
    assert written is not None
    frames = files.frames
    other = Client(client.bench, "other", epoch_per_transaction=True)
    await other.init()
    await other.write(b"b")
    client.bench = await files.killed(damaged_from=frames)
    assert files.storage.has_lost_commits
    assert await client.resume() == written
    await client.end(commit=True)
    assert await client.bench.committed() == [b"a"]
    await files.bench.close()


async def test_a_transaction_goes_on_whose_preparation_is_lost(tmp_path: Path) -> None:
    """Nobody can have decided it: a decision would be later."""
    files = Files(tmp_path)
    client = Client(await files.start("data"), epoch_per_transaction=True)
    await client.init(two_phase=True)
    await client.write(b"a")
    frames = files.frames
    written = await client.resume(expected=client.producer)
    client.bench = await files.killed(damaged_from=frames)
    successor = Client(client.bench, epoch_per_transaction=True)
    assert await successor.resume() == written
    await successor.end(commit=True)
    assert await client.bench.committed() == [b"a"]
    await files.bench.close()


async def test_producer_ids_that_lost_commits_gave_out_are_not_given_out_again(tmp_path: Path) -> None:
    files = Files(tmp_path)
    bench = await files.start("data")
    frames = files.frames
    given = [await bench.broker.transactions.producer_ids.take() for _ in range(2500)]
    bench = await files.killed(damaged_from=frames)
    assert await bench.broker.transactions.producer_ids.take() >= LOST > max(given)
    files.bench = bench
    await bench.close()
    again = await files.start("killed")
    assert await again.broker.transactions.producer_ids.take() > LOST
    await again.close()


async def test_producer_ids_are_skipped_by_the_first_broker_that_gets_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One start finds the damage and fails: the next one does not see it any more, but has to know of it."""
    files = Files(tmp_path)
    bench = await files.start("data")
    frames = files.frames
    given = await bench.broker.transactions.producer_ids.take()

    async def fail(self: AccessControl) -> None:
        raise PermissionError("the users cannot be read")

    with monkeypatch.context() as patches, pytest.raises(PermissionError):
        patches.setattr(AccessControl, "coordinate", fail)
        await files.killed(damaged_from=frames)
    bench = await files.start("killed")
    skipped = await bench.broker.transactions.producer_ids.take()
    assert skipped >= LOST > given
    await bench.close()
    bench = await files.start("killed")
    assert await bench.broker.transactions.producer_ids.take() < skipped + LOST, "once is enough"
    await bench.close()


async def test_producer_ids_end_with_an_error() -> None:
    """Beyond the end an id that is bound to a user would look like another user's."""
    ids = ProducerIds(MemoryStorage(ManualClock()))
    for _ in range(END // LOST):
        await ids.skip_lost()
    for _ in range(2):
        with pytest.raises(Unavailable, match="used up"):
            await ids.take()
        with pytest.raises(Unavailable, match="used up"):
            await ids.skip_lost()


@pytest.mark.parametrize("checkpointed", [False, True])
async def test_messages_of_queues_outlive_the_journal(
    tmp_path: Path, checkpointed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """From whichever frame on it is gone. The queue's definition is stored with its log: without it nothing
    would lead to the messages."""
    values = [b"%d" % number for number in range(6)]
    storage = queue_storage(tmp_path / "data")
    async with running(storage=storage) as rig:
        await rig.queue("orders", max_length=100)
        if checkpointed:
            await storage.checkpoint()
        for value in values:
            await rig.publish(value, key=b"orders")
        crashed = await crash_copy(storage, tmp_path / "crashed")
    [file] = journal_files(OsDisk(), str(crashed / "journal"))
    frames = len(frames_in(OsDisk(), file))
    assert frames >= len(values)
    for first in range(frames + 1):
        copy = Path(shutil.copytree(crashed, tmp_path / str(first)))
        if first < frames:
            zero_frames(copy, first)
        else:
            (copy / "journal" / Path(file.path).name).unlink()
        caplog.clear()
        async with running(storage=queue_storage(copy)) as rig:
            queue = rig.namespace.queues["orders"]
            assert isinstance(queue, Queue)
            assert queue.definition.max_length == 100
            assert await values_of(queue) == values, first
            assert "the journal is damaged" in caplog.text
            named = f'messages may come again in queue "orders" (vhost "/"), references in {queue.log.name}'
            assert named in caplog.text
        shutil.rmtree(copy)


def queue_storage(data: Path) -> FileStorage:
    return FileStorage(data, clock=SystemClock(), journal_bytes=64 * 1024, checkpoint_seconds=3600)
