"""Recovery: restore a data directory to the last acknowledged state.

1. The catalog: the valid size of every segment at the last checkpoint. 2. The journal: commits since then. 3.
The tails: bytes of segments that neither of them covers (see `tails`).

The work is bounded by the size of the journal and the number of segments, of which recovery reads only the
first bytes. It reads whole segments only if the catalog is lost.
"""

import logging
from collections.abc import Mapping

from posthouse.model.ids import TOPIC_ID_BYTES, PartitionId, TopicId
from posthouse.model.topic_config import Durability
from posthouse.storage.files.catalog import producer_rows
from posthouse.storage.files.catalog.rows import Contents
from posthouse.storage.files.journal.head import Head, read_head
from posthouse.storage.files.journal.journal import APPEND, TRIM, head_path, journal_files
from posthouse.storage.files.journal.reader import Frame, Gap, JournalEntry, PutEntry, read_journal
from posthouse.storage.files.recovery.leftovers import remove_leftovers
from posthouse.storage.files.recovery.tails import Loss, Recovered, TailRecovery
from posthouse.storage.files.segments.header import identity_of, remove_segment
from posthouse.storage.files.segments.logs import Logs
from posthouse.storage.files.segments.partition_log import PartitionLog
from posthouse.storage.files.segments.reader import header_at
from posthouse.storage.files.segments.segment import HEADER_BYTES, Damage, Segment
from posthouse.storage.files.system.disk import Disk
from posthouse.storage.files.system.open_files import OpenFiles
from posthouse.storage.spaces import Space


class Recovery:
    def __init__(
        self,
        disk: Disk,
        files: OpenFiles,
        directory: str,
        logs: Logs,
        names: Mapping[TopicId, str],
        now_ms: int,
    ) -> None:
        """`logs` are empty. `names` maps topic ids to names."""
        self._disk = disk
        self._files = files
        self._directory = directory
        self._now_ms = now_ms
        self._result = Recovered(logs)
        self._tails = TailRecovery(disk, files, directory, names, self._result, now_ms)
        self._fresh_directories: dict[str, None] = {}

    def run(self, contents: Contents) -> Recovered:
        result = self._result
        result.state = {space: each for space, each in contents.state.items() if space != Space.PRODUCERS}
        result.has_lost_commits = contents.has_lost_commits
        if contents.frame is None:
            self._report_unknown_topics(contents)
            self._walk_everything()
            # The segments are newer than these rows of the restored catalog: remove the rows.
            for key in contents.state.get(Space.PRODUCERS, {}):
                result.state_changes[Space.PRODUCERS.value, key] = None
        else:
            self._load(contents)
            remove_leftovers(self._disk, result.logs.values())
        result.next_frame = (contents.frame or 0) + 1
        loss = self._replay_journal(contents)
        if loss is Loss.FRAMES:  # unsynced frames hold only batches: commits with puts are always synced
            result.has_lost_commits = True
        if not contents.clean:
            for partition_log in result.logs.values():
                self._tails.finish(partition_log, loss, has_catalog=contents.frame is not None)
        if contents.frame is None:
            self._keep_bounds(contents)
        for partition_log in result.logs.values():
            partition_log.next_offset = partition_log.end
            if partition_log.segments and partition_log.segments[-1].size == 0:
                # A power cut removed a file of an older version: the file created now has a header.
                partition_log.segments[-1].has_header = True
        self._tails.report_doubts()
        for directory in self._fresh_directories:
            self._disk.sync_directory(directory)
        return result

    def _report_unknown_topics(self, contents: Contents) -> None:
        """Report topics that were created shortly before the catalog was lost: its backup may lack them."""
        known = {row.id.hex() for row in contents.topics}
        for name in self._disk.names(f"{self._directory}/topics"):
            if name not in known and len(name) == 2 * TOPIC_ID_BYTES:
                self._result.report(
                    f"{self._directory}/topics/{name} is the directory of a topic that the catalog's backup "
                    "does not know: its name and settings are lost with the catalog. Its records stay in the "
                    "directory: look at them with 'posthouse log dump'"
                )

    def _replay_journal(self, contents: Contents) -> Loss:
        """Replay the commits since the checkpoint; returns what is missing of the journal."""
        journal = f"{self._directory}/journal"
        head = None if contents.clean else read_head(self._disk, head_path(journal))
        loss = self._loss_without(head, contents)
        if loss is Loss.UNDECIDED and not journal_files(self._disk, journal):
            self._result.report(f"{journal} is empty: frames from {self._result.next_frame} on are missing")
            loss = Loss.FRAMES
            self._prove_gap(self._result.next_frame)
        gaps: list[Gap] = []
        synced = 0 if head is None else head.synced
        for found in read_journal(self._disk, journal, contents.frame, head):
            if isinstance(found, Frame):
                synced = max(synced, found.synced)
                for entry in found.entries:
                    if isinstance(entry, PutEntry):
                        self._put(entry)
                    else:
                        self._replay(entry)
                self._result.next_frame = found.number + 1
            else:
                gaps.append(found)
                self._result.next_frame = found.next
                self._prove_gap(found.first)
        for gap in gaps:
            was_synced = self._was_synced(gap, synced, head)
            self._report_gap(gap, was_synced=was_synced)
            if loss is not Loss.FRAMES:
                loss = Loss.FRAMES if was_synced else Loss.UNSYNCED
        return loss

    def _prove_gap(self, first: int) -> None:
        """Skip at least one frame number, because frames from `first` on are missing, perhaps an unknown
        number of them.

        The name of the next journal file then proves the gap to a second recovery, if this one is killed
        before its checkpoint.
        """
        self._result.has_gap = True
        self._result.next_frame = max(self._result.next_frame, first + 1)

    def _was_synced(self, gap: Gap, synced: int, head: Head | None) -> bool:
        """Whether synced frames are missing, which a power cut cannot explain."""
        if gap.first <= synced or gap.reason:  # files are allocated and synced before they get their names
            return True
        is_unsynced = (
            head is not None and gap.next <= head.written + 1
        )  # though its topic may be deleted by now
        return not is_unsynced and not self._trusts_system

    @property
    def _trusts_system(self) -> bool:
        """Whether frames may have been acknowledged without a sync, so that a power cut can explain their
        loss."""
        return any(owner.config.durability is Durability.OS for owner in self._result.logs.values())

    def _loss_without(self, head: Head | None, contents: Contents) -> Loss:
        if head is not None or contents.clean or contents.frame is None or not contents.was_started:
            return Loss.NOTHING
        if contents.has_head:
            # Possibly lost; skipping producer ids needlessly costs little.
            self._result.has_lost_commits = True
            path = head_path(f"{self._directory}/journal")
            self._result.report(
                f"{path} is missing or damaged: it is unknown whether the journal's end is whole. Batches "
                "behind it are set aside"
            )
        return Loss.UNDECIDED

    def _report_gap(self, gap: Gap, *, was_synced: bool) -> None:
        if was_synced:
            self._result.report(
                f"the journal is damaged: {gap}. Batches that the segments hold are kept; what else these "
                "commits changed is lost (committed offsets, states of transactions, acknowledgements of "
                "queues, definitions)"
            )
        else:
            self._result.report(
                f"frames that were acknowledged without a sync (durability=os) are missing: {gap}",
                level=logging.WARNING,
            )

    def _load(self, contents: Contents) -> None:
        for partition_row in contents.partitions:
            owner = self._result.logs.get(partition_row.partition)
            if owner is not None:
                owner.start, owner.end = partition_row.start, partition_row.end
        for row in contents.segments:
            owner = self._result.logs.get(row.partition)
            if owner is None:
                continue
            segment = Segment(
                owner.directory,
                row.partition.index,
                row.base_offset,
                created_ms=row.created_ms,
                interval=owner.config.index_interval_bytes,
                size=row.size,
                max_timestamp=row.max_timestamp,
                index_size=row.index_size,
                generation=row.generation,
                clean_to=row.clean_to,
                horizon=row.horizon,
                has_header=row.has_header,
            )
            owner.segments.append(segment)
            self._tails.check_identity(owner, segment)
        for owner in self._result.logs.values():
            if owner.segments and owner.segments[-1].misplaced:
                # Otherwise the next batch would be written to a misplaced file.
                owner.add_segment(owner.end, self._now_ms)
        for key, value in contents.state.get(Space.PRODUCERS, {}).items():
            owner = self._result.logs.get(producer_rows.partition_of(key))
            if owner is not None:
                producer_rows.load(owner.producers, key, value)
            else:  # its topic was deleted, and no checkpoint followed
                self._result.state_changes[Space.PRODUCERS.value, key] = None

    def _put(self, entry: PutEntry) -> None:
        values = self._result.state.setdefault(entry.space, {})
        if entry.value is None:
            values.pop(entry.key, None)
        else:
            values[entry.key] = entry.value
        self._result.state_changes[entry.space, entry.key] = entry.value

    def _walk_everything(self) -> None:
        """The catalog is lost: read every segment from its first byte to its last."""
        for owner in self._result.logs.values():
            self._tails.take_in_files(owner)
            if owner.segments:
                owner.start = owner.segments[0].base_offset

    def _keep_bounds(self, contents: Contents) -> None:
        """Restore starts and ends after the loss of the catalog: no offset is assigned twice, and no trimmed
        record comes back."""
        known = {row.partition: row.end for row in contents.partitions}
        for found in self._result.logs.values():
            if found.end > known.get(found.id, 0):
                self._result.salvaged(found, known.get(found.id, 0))
        for row in contents.partitions:
            owner = self._result.logs.get(row.partition)
            if owner is None:
                continue
            if row.end > owner.end:
                owner.end = row.end
                owner.add_segment(row.end, self._now_ms)
            self._trim(owner, row.start)

    def _trim(self, owner: PartitionLog, offset: int) -> None:
        self._result.changed[owner] = None
        for segment in owner.trim(offset):
            remove_segment(self._disk, segment)

    def _replay(self, entry: JournalEntry) -> None:
        owner = self._result.logs.get(PartitionId(TopicId(entry.topic), entry.partition))
        if owner is None:
            return  # its topic was deleted later
        self._result.changed[owner] = None
        if entry.kind == TRIM:
            owner.end = max(owner.end, entry.offset)  # no trim goes beyond the end at its time
            self._trim(owner, entry.offset)
            return
        if entry.next_offset <= owner.end:
            return  # found already by walking the segments
        if entry.offset > owner.end:
            first = owner.end
            self._tails.take_in_files(owner, before=entry)
            if owner.end > first:
                self._result.salvaged(owner, first)
        segment = self._tails.segment(owner, entry.segment, position=entry.position)
        if segment.misplaced:
            segment = owner.segments[-1]
            entry = entry._replace(position=segment.tail)
        if entry.offset > owner.end:
            problem = f"{segment.path}: offsets {owner.end} to {entry.offset - 1} are missing"
            self._tails.report_later(owner, entry.offset, problem)
        if segment.generation:
            # Only when the catalog is lost and the end of a compacted file is damaged: positions of the
            # journal refer to the old file and are meaningless in this one.
            self._tails.report_later(owner, entry.next_offset, f"{segment.path}: its end is missing")
            owner.end = entry.next_offset
            return
        if segment.tail < entry.position:
            segment.add_damage(Damage(segment.tail, entry.position, owner.end, entry.offset))
            segment.count_damage(entry.position)
        owner.end = max(owner.end, entry.offset)
        if entry.kind == APPEND:
            self._write_again(owner, segment, entry)
        else:
            self._take_in_range(owner, segment, entry)

    def _take_in_range(self, owner: PartitionLog, segment: Segment, entry: JournalEntry) -> None:
        """Count a range. The frame proves these offsets even if the bytes are damaged: none of them is
        assigned again."""
        end = entry.position + entry.length
        self._tails.take_in(owner, segment, end, entry.next_offset)
        if segment.size == 0 and self._disk.size(segment.path) < 0:
            return  # a power cut removed the name of a new file: the next batch creates it again
        segment.count_damage(end)
        owner.end = entry.next_offset

    def _write_again(self, owner: PartitionLog, segment: Segment, entry: JournalEntry) -> None:
        assert entry.batch is not None
        header = header_at(entry.batch, 0)
        assert header is not None, "the frame's checksum covers the batch"
        self._fresh_directories |= dict.fromkeys(self._disk.make_directory(owner.directory))
        if entry.position <= HEADER_BYTES:
            self._fresh_directories[owner.directory] = None
        file = self._files.acquire(segment.path, create=True)
        try:
            if entry.position == HEADER_BYTES:
                self._disk.write(file.handle, [identity_of(segment.path).header()], 0)
            self._disk.write(file.handle, [entry.batch], entry.position)
        finally:
            self._files.release(file)
        owner.found(segment, entry.position, entry.batch, header, self._now_ms)
