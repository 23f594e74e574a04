"""Storage, transactions and scheduled messages."""

from typing import Final

from posthouse.broker.broker import Broker
from posthouse.protocols.admin.metrics.family import counter, gauge, histogram
from posthouse.protocols.admin.metrics.samples import Samples

SYNC: Final = histogram(
    "posthouse_journal_sync_duration_seconds",
    "Time to write and sync one group of commits to the journal, or to store it in the database.",
)
GROUP: Final = histogram(
    "posthouse_journal_group_commits", "Commits that were written together (group commit)."
)
JOURNAL: Final = counter("posthouse_journal_written_bytes_total", "Bytes written to the journal.")
CHECKPOINT: Final = histogram("posthouse_checkpoint_duration_seconds", "Time that checkpoints took.")
CHECKPOINT_FAILURES: Final = counter("posthouse_checkpoint_failures_total", "Checkpoints that failed.")
COMPACTION: Final = counter("posthouse_compaction_seconds_total", "Time spent on compaction.")
COMPACTED: Final = counter("posthouse_compacted_partitions_total", "Compactions of one partition.")
RETENTION: Final = counter("posthouse_retention_runs_total", "Times that retention was enforced.")
RETENTION_RECORDS: Final = counter(
    "posthouse_retention_removed_records_total", "Offsets removed by retention."
)
UNWRITTEN: Final = gauge("posthouse_storage_unwritten_bytes", "Bytes that are committed and not yet durable.")
WRITABLE: Final = gauge(
    "posthouse_storage_writable", "1 if storage takes writes, 0 if it is fenced or closed."
)
FREE: Final = gauge("posthouse_disk_free_bytes", "Free space on the disk of the data directory.")
TOTAL: Final = gauge("posthouse_disk_size_bytes", "Size of the disk of the data directory.")
OPEN: Final = gauge("posthouse_transactions_open", "Transactions that have begun and not ended.")
PREPARED: Final = gauge(
    "posthouse_transactions_prepared", "Transactions that wait for the owner of their two-phase commit."
)
PREPARED_AGE: Final = gauge(
    "posthouse_transactions_prepared_oldest_seconds",
    "How long ago the oldest transaction began that waits for the owner of its two-phase commit.",
)
COMMITTED: Final = counter("posthouse_transactions_committed_total", "Transactions that were committed.")
ABORTED: Final = counter("posthouse_transactions_aborted_total", "Transactions that were aborted.")
SCHEDULED: Final = gauge(
    "posthouse_scheduled_messages",
    "Delayed messages that are not yet published, or recalled but not yet due, in the namespaces that this "
    "broker serves.",
)
HALF: Final = gauge("posthouse_half_messages", "Half messages whose producers have not decided yet.")
HALF_COMMITTED: Final = counter(
    "posthouse_half_messages_committed_total", "Half messages that were committed."
)
HALF_ROLLED_BACK: Final = counter(
    "posthouse_half_messages_rolled_back_total", "Half messages that were rolled back."
)
HALF_PARKED: Final = counter(
    "posthouse_half_messages_parked_total",
    "Half messages that nobody has decided, and that were put into the topic posthouse.undecided.",
)
INDEX_BEHIND: Final = gauge(
    "posthouse_key_index_behind_records", "Offsets of topics with index.keys that are not indexed yet."
)
INDEX_BYTES: Final = gauge("posthouse_key_index_file_bytes", "Size of the files of the key index.")
INDEXED: Final = counter("posthouse_key_index_records_total", "Offsets that the key index has read.")
INDEX_DAMAGED: Final = counter(
    "posthouse_key_index_damaged_files_total", "Files of the key index that were damaged, and made again."
)
SEARCHES: Final = counter("posthouse_key_searches_total", "Searches by key or message id, by any protocol.")
SEARCHED: Final = counter(
    "posthouse_key_searches_read_bytes_total",
    "Bytes of batches that the broker has read for searches by key or message id.",
)
KEYS: Final = gauge(
    "posthouse_idempotency_keys",
    "Idempotency keys that this broker remembers; counted from the first request with a key on.",
)
REPEATED: Final = counter(
    "posthouse_idempotency_repeated_total", "Requests that repeated an earlier one with the same key."
)
REUSED: Final = counter(
    "posthouse_idempotency_refused_total",
    "Requests that were refused because their key was used for another one, or none was to be had.",
)
FAMILIES: Final = (
    *(SYNC, GROUP, JOURNAL, CHECKPOINT, CHECKPOINT_FAILURES, COMPACTION, COMPACTED, RETENTION),
    *(RETENTION_RECORDS, UNWRITTEN, WRITABLE, FREE, TOTAL, OPEN, PREPARED, PREPARED_AGE),
    *(COMMITTED, ABORTED, SCHEDULED),
    *(HALF, HALF_COMMITTED, HALF_ROLLED_BACK, HALF_PARKED),
    *(INDEX_BEHIND, INDEX_BYTES, INDEXED, INDEX_DAMAGED, SEARCHES, SEARCHED),
    *(KEYS, REPEATED, REUSED),
)


async def collect(broker: Broker, samples: Samples) -> None:
    metrics = broker.storage_metrics
    samples.add(SYNC, metrics.sync_seconds)
    samples.add(GROUP, metrics.commits_per_sync)
    samples.add(JOURNAL, metrics.journal_bytes)
    samples.add(CHECKPOINT, metrics.checkpoint_seconds)
    samples.add(CHECKPOINT_FAILURES, metrics.checkpoint_failures)
    samples.add(COMPACTION, metrics.compaction_seconds)
    samples.add(COMPACTED, metrics.compacted_partitions)
    samples.add(RETENTION, metrics.retention_runs)
    samples.add(RETENTION_RECORDS, metrics.retention_records)
    samples.add(UNWRITTEN, broker.unwritten_bytes)
    condition = await broker.storage_condition()
    samples.add(WRITABLE, 1 if condition.refusal is None else 0)
    if condition.free_bytes is not None and condition.total_bytes is not None:
        samples.add(FREE, condition.free_bytes)
        samples.add(TOTAL, condition.total_bytes)
    transitions = broker.transactions.transitions
    began = broker.transactions.ids.prepared_since()
    samples.add(OPEN, len(broker.transactions.ids.open()))
    samples.add(PREPARED, len(began))
    samples.add(PREPARED_AGE, max(broker.now_ms() - min(began), 0) / 1000 if began else 0)
    samples.add(COMMITTED, transitions.committed)
    samples.add(ABORTED, transitions.aborted)
    samples.add(SCHEDULED, broker.scheduled_messages)
    half_messages = broker.half_messages
    samples.add(HALF, len(half_messages))
    samples.add(HALF_COMMITTED, half_messages.committed)
    samples.add(HALF_ROLLED_BACK, half_messages.rolled_back)
    samples.add(HALF_PARKED, half_messages.parked)
    keys = broker.idempotent_appends
    samples.add(KEYS, keys.remembered)
    samples.add(REPEATED, keys.repeated)
    samples.add(REUSED, keys.refused)
    index = broker.key_index
    samples.add(INDEX_BEHIND, index.behind())
    samples.add(INDEX_BYTES, index.file_bytes)
    samples.add(INDEXED, index.indexed_records)
    samples.add(INDEX_DAMAGED, index.damaged_files)
    samples.add(SEARCHES, index.searches)
    samples.add(SEARCHED, index.searched_bytes)
