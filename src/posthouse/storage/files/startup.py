"""Opens the files of a data directory and recovers what they hold, and closes them."""

import base64
import logging
from collections.abc import Callable

from posthouse.model.clock import Clock
from posthouse.model.errors import PosthouseError, Unavailable
from posthouse.model.topic_config import TopicConfig
from posthouse.storage.files.catalog.catalog import Catalog
from posthouse.storage.files.definitions import Definitions
from posthouse.storage.files.journal.journal import Journal
from posthouse.storage.files.recovery.recovery import Recovery
from posthouse.storage.files.recovery.tails import Recovered
from posthouse.storage.files.segments.logs import Logs
from posthouse.storage.files.system.data_directory import DataDirectory
from posthouse.storage.files.system.disk import Disk, SyncFailed
from posthouse.storage.files.system.open_files import OpenFiles

log = logging.getLogger(__name__)


class Startup:
    """Called on the background thread. After a failure nothing is left open."""

    def __init__(
        self,
        directory: str,
        disk: Disk,
        data_directory: DataDirectory,
        files: OpenFiles,
        catalog: Catalog,
        journal: Journal,
        definitions: Definitions,
        clock: Clock,
        defaults: TopicConfig,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._directory = directory
        self._disk = disk
        self._data_directory = data_directory
        self._files = files
        self._catalog = catalog
        self._journal = journal
        self._definitions = definitions
        self._clock = clock
        self._defaults = defaults
        self._random_bytes = random_bytes

    def open(self) -> tuple[str, Recovered]:
        """The id of the cluster, and what was recovered. Raises Unavailable."""
        try:
            return self._open()
        except BaseException as error:
            self._catalog.close()
            self._data_directory.release()
            if isinstance(error, OSError | SyncFailed):
                raise Unavailable(
                    f"{self._directory} cannot be opened: {error}; check that the broker's user may read and "
                    "write everything in it, and look at the system's log for errors of the disk"
                ) from error
            raise

    def _open(self) -> tuple[str, Recovered]:
        self._data_directory.acquire()
        for name in ("journal", "topics"):
            self._disk.make_directory(f"{self._directory}/{name}")
        # Also if no file is new: a killed process may have created the files.
        for path in (self._directory, f"{self._directory}/topics"):
            self._disk.sync_directory(path)
        contents = self._catalog.open(self._new_cluster_id)
        rows = [row for row in contents.topics if not row.deleted]
        self._definitions.topics = {row.id: row.topic(self._defaults) for row in rows}
        self._definitions.finish_deleting([row.id for row in contents.topics if row.deleted])
        logs = Logs(self._directory, self._definitions.topics.values())
        names = {row.id: row.name for row in rows}
        recovery = Recovery(self._disk, self._files, self._directory, logs, names, self._clock.now_ms())
        recovered = recovery.run(contents)
        if recovered.has_lost_commits and not contents.has_lost_commits:
            self._catalog.set_lost_commits(True)
        self._journal.start(recovered.next_frame)
        self._catalog.set_started(has_head=self._journal.has_head)
        self._data_directory.watch()
        return contents.cluster_id, recovered

    def _new_cluster_id(self) -> str:
        return base64.urlsafe_b64encode(self._random_bytes(16)).decode().rstrip("=")

    def close(self, *, clean: bool) -> None:
        """`clean`: everything is in a checkpoint, so that the next start need not read the journal."""
        try:
            if clean:
                self._catalog.set_clean()
            self._journal.close(everything_checkpointed=clean)
        except (OSError, SyncFailed, PosthouseError) as error:
            log.warning(
                "%s: not closed cleanly, the next start reads the journal: %s", self._directory, error
            )
        finally:
            self._catalog.close()
            self._files.close()
            self._data_directory.release()
