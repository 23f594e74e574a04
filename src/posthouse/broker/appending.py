"""Batches to append to the log, and their results."""

from collections.abc import Sequence
from dataclasses import dataclass

from posthouse.model.errors import PosthouseError
from posthouse.model.topics import Topic
from posthouse.records.stored_form import Opened
from posthouse.storage.operations import Run


@dataclass(slots=True)
class Produced:
    """One batch to append. The bytes must be writable: offsets are stamped in place."""

    topic: Topic
    partition: int
    batch: memoryview
    runs: Sequence[Run] = ()
    """References to its records, committed with it."""
    opened: Opened | PosthouseError | None = None
    """None if the batch has not been opened yet."""
    has_own_times: bool = False
    """The broker has made the timestamps: no limit of the topic applies, even if its clock has jumped
    since."""


@dataclass(slots=True)
class Appended:
    """The result of an append. `append_time` is -1 if the records keep their producer's timestamps."""

    base_offset: int
    log_start: int
    append_time: int
