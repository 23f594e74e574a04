"""A broker as everybody starts it, by its command, to be killed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.served import ServedBroker
from tests.stored import end_lease, stored_in


class BrokerProcess(ServedBroker):
    """With a journal so small that its files are recycled all the time."""

    def __init__(self, data: Path, port: int = 0) -> None:
        self._data = data
        settings = {**stored_in(data), "kafka": f"127.0.0.1:{port}", "journal_bytes": 256 * 1024}
        super().__init__(**settings)

    def kill(self) -> None:
        super().kill()
        end_lease(self._data)


@contextmanager
def broker(data: Path, port: int = 0) -> Iterator[BrokerProcess]:
    process = BrokerProcess(data, port)
    try:
        yield process
    finally:
        process.kill()


def forget(data: Path) -> None:
    """What a disk that lies may do while the broker is dead: the journal is gone, and segments are cut."""
    for journal in (data / "journal").glob("*.wal"):
        journal.unlink()
    for segment in (data / "topics").rglob("*.log"):
        with segment.open("r+b") as file:
            file.truncate(segment.stat().st_size // 2)
