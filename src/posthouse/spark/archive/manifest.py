"""The manifest: the valid files of an archive, and the exact offsets of each.

    _manifest/00000000000000000001.json     one version each; never changed once it exists
    _manifest/00000000000000000002.json
    topic=orders/day=2026-11-14/….parquet   data; valid only when a version names it

A version is a JSON object:

    format, version, time (ms), run      what created it
    topics     {id: name} of new topics
    cover      [topic id, partition, start, end]: from now on the archive holds these offsets
    add        files: path, topic (id), rows, bytes, min_timestamp, max_timestamp (ms, of the records) and
               parts [partition, first, end, rows], one for each partition with records in the file
    retire     paths whose rows are in the added files from now on; they may be removed after a while
    forget     paths of retired files that were removed
    state      in some versions: the full state after it, so that readers can start there
    previous   in the same ones: the previous version with a state

Invariant: every committed record of a topic (by its id: a re-created topic is another one) with start ≤
offset < end of a covered range is in exactly one valid file. Offsets may have holes. If the log had lost
records before they were archived, a partition has several ranges.

Crashes: data files are durable before a version names them, and a version is written atomically. Of two
archivers that create the same version only one succeeds; the other reads what has changed and retries if its
own change still fits. Files that no version names are leftovers: readers never see them.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from posthouse.spark.archive.errors import ArchiveConflict, ArchiveDamaged, ArchiveError, NoArchive
from posthouse.spark.archive.root import Root

DIRECTORY = "_manifest"
FORMAT = 1
_FEWEST_CHANGES, _MOST_CHANGES = 16, 500
"""A state is written after an eighth as many versions as it has files, within these limits: all states
together stay a small multiple of the versions, and readers never read many versions."""


class Range(NamedTuple):
    """Offsets from `start` to before `end`."""

    start: int
    end: int


class FilePart(NamedTuple):
    """A file's part of one partition: `rows` records from offset `first` to before `end`."""

    partition: int
    first: int
    end: int
    rows: int


class Log(NamedTuple):
    """One partition of one topic, by the topic's id."""

    topic_id: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedFile:
    path: str
    topic_id: str
    rows: int
    bytes: int
    min_timestamp: int
    max_timestamp: int
    parts: tuple[FilePart, ...]

    @property
    def day(self) -> str:
        """The day of all its records, as in its path."""
        return self.path.split("/")[-2].removeprefix("day=")

    def part(self, partition: int) -> FilePart | None:
        return next((part for part in self.parts if part.partition == partition), None)

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "topic": self.topic_id,
            "rows": self.rows,
            "bytes": self.bytes,
            "min_timestamp": self.min_timestamp,
            "max_timestamp": self.max_timestamp,
            "parts": [list(part) for part in self.parts],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "ArchivedFile":
        return cls(
            path=value["path"],
            topic_id=value["topic"],
            rows=value["rows"],
            bytes=value["bytes"],
            min_timestamp=value["min_timestamp"],
            max_timestamp=value["max_timestamp"],
            parts=tuple(FilePart(*part) for part in value["parts"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The content of one version. It either covers more offsets, or replaces files by others with the same
    rows."""

    topics: Mapping[str, str] = field(default_factory=dict)
    """Names by id."""
    cover: Mapping[Log, Range] = field(default_factory=dict)
    add: Sequence[ArchivedFile] = ()
    retire: Sequence[str] = ()
    forget: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "topics": dict(self.topics),
            "cover": [[*log, *covered] for log, covered in self.cover.items()],
            "add": [file.to_json() for file in self.add],
            "retire": list(self.retire),
            "forget": list(self.forget),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Change":
        return cls(
            topics=value["topics"],
            cover={Log(id, partition): Range(start, end) for id, partition, start, end in value["cover"]},
            add=tuple(ArchivedFile.from_json(file) for file in value["add"]),
            retire=tuple(value["retire"]),
            forget=tuple(value["forget"]),
        )


@dataclass(slots=True, kw_only=True)
class ArchiveState:
    """The state of the archive after a version."""

    version: int = 0
    topics: dict[str, str] = field(default_factory=dict)
    """Names by id, in the order in which they were first archived."""
    covered: dict[Log, list[Range]] = field(default_factory=dict)
    files: dict[str, ArchivedFile] = field(default_factory=dict)
    retired: dict[str, int] = field(default_factory=dict)
    """Time in ms at which each path was retired."""

    def apply(self, change: Change, now_ms: int) -> None:
        """Raises ArchiveConflict, and changes nothing, if the change does not fit."""
        _check(self, change)
        self.version += 1
        self.topics |= {id: name for id, name in change.topics.items() if id not in self.topics}
        for log, covered in change.cover.items():
            ranges = self.covered.setdefault(log, [])
            if ranges and ranges[-1].end == covered.start:
                ranges[-1] = Range(ranges[-1].start, covered.end)
            else:
                ranges.append(covered)
        for path in change.retire:
            del self.files[path]
            self.retired[path] = now_ms
        for file in change.add:
            self.files[file.path] = file
        for path in change.forget:
            self.retired.pop(path, None)

    def end(self, log: Log) -> int | None:
        """The archived end of the log; None if nothing is archived."""
        ranges = self.covered.get(log)
        return ranges[-1].end if ranges else None

    def newest_id(self, topic: str) -> str | None:
        """Of several topics with this name, the id of the one that was archived first most recently."""
        ids = [id for id, name in self.topics.items() if name == topic]
        return ids[-1] if ids else None

    def of_topic(self, topic_id: str) -> Iterator[ArchivedFile]:
        return (file for file in self.files.values() if file.topic_id == topic_id)

    def to_json(self) -> dict[str, Any]:
        return {
            "topics": self.topics,
            "covered": [[*log, [list(each) for each in ranges]] for log, ranges in self.covered.items()],
            "files": [file.to_json() for file in self.files.values()],
            "retired": self.retired,
        }

    @classmethod
    def from_json(cls, version: int, value: Mapping[str, Any]) -> "ArchiveState":
        files = [ArchivedFile.from_json(file) for file in value["files"]]
        return cls(
            version=version,
            topics=dict(value["topics"]),
            covered={
                Log(id, partition): [Range(*each) for each in ranges]
                for id, partition, ranges in value["covered"]
            },
            files={file.path: file for file in files},
            retired=dict(value["retired"]),
        )


def _check(state: ArchiveState, change: Change) -> None:
    for log, covered in change.cover.items():
        end = state.end(log)
        if covered.start >= covered.end:
            raise ArchiveError(f"the range {covered.start} to {covered.end} is empty")
        if end is not None and covered.start < end:
            name = state.topics.get(log.topic_id, log.topic_id)
            raise ArchiveConflict(
                f"another archiver has written partition {log.partition} of topic {name!r} up to offset "
                f"{end} meanwhile; let only one run at a time, and run it again"
            )
    for path in change.retire:
        if path not in state.files:
            raise ArchiveConflict(f"{path} was replaced by another archiver meanwhile; run it again")
    for file in change.add:
        if file.path in state.files or file.path in state.retired:
            raise ArchiveError(f"{file.path} is in the manifest already")
        if sum(part.rows for part in file.parts) != file.rows:
            raise ArchiveError(f"the parts of {file.path} have not as many rows as the file")
    if change.retire:
        before = _contents(state.files[path] for path in change.retire)
        if change.cover or before != _contents(change.add):
            raise ArchiveError("files can only be replaced by others with the same records")
    else:
        for file in change.add:
            for part in file.parts:
                covered = change.cover.get(Log(file.topic_id, part.partition), Range(0, 0))
                if not covered.start <= part.first < part.end <= covered.end:
                    raise ArchiveError(f"{file.path} has offsets that are not covered")


def _contents(files: Iterable[ArchivedFile]) -> dict[Log, tuple[int, int, int]]:
    """First offset, end and rows of every log in the files."""
    found: dict[Log, tuple[int, int, int]] = {}
    for file in files:
        for part in file.parts:
            log = Log(file.topic_id, part.partition)
            first, end, rows = found.get(log, (part.first, part.end, 0))
            found[log] = min(first, part.first), max(end, part.end), rows + part.rows
    return found


class Manifest:
    """The manifest of one archive. `state` is as of the last `refresh`."""

    def __init__(self, root: Root) -> None:
        self.root = root
        self.state = ArchiveState()
        self._state_version = 0
        self._previous_state = 0

    @classmethod
    def open(cls, root: Root) -> "Manifest":
        """Raises NoArchive if there is none."""
        manifest = cls(root)
        manifest.refresh()
        if not manifest.state.version:
            raise NoArchive(
                f"there is no archive in {root}; make one with 'posthouse archive run TOPIC --to {root}'"
            )
        return manifest

    def refresh(self) -> None:
        """Read new versions."""
        newest = max(self._versions(), default=0)
        version = newest
        pending: list[Mapping[str, Any]] = []
        while version > self.state.version:
            value = self._read(version)
            if "state" in value:
                self.state = ArchiveState.from_json(version, value["state"])
                self._state_version, self._previous_state = version, value["previous"]
                break
            pending.append(value)
            version -= 1
        for value in reversed(pending):
            self.state.apply(Change.from_json(value), value["time"])

    def commit(self, change: Change, *, run: str, now_ms: int | None = None) -> None:
        """Commit durably, or not at all: raises ArchiveConflict if another archiver's change prevents it."""
        now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        while True:
            self.refresh()
            _check(self.state, change)
            version = self.state.version + 1
            value = {"format": FORMAT, "version": version, "time": now, "run": run, **change.to_json()}
            if version - self._state_version >= self._state_due():
                after = ArchiveState.from_json(self.state.version, self.state.to_json())
                after.apply(change, now)
                value |= {"state": after.to_json(), "previous": self._state_version}
            data = json.dumps(value, separators=(",", ":")).encode()
            try:
                self.root.create_new(_path(version), data)
            except FileExistsError:
                if version > max(self._versions(), default=0):
                    raise ArchiveConflict(
                        f"another archiver writes to {self.root} at this moment; let only one run at a time"
                    ) from None
                continue
            self.state.apply(change, now)
            if "state" in value:
                self._state_version, self._previous_state = version, self._state_version
            return

    def is_outdated(self, path: str) -> bool:
        """Whether the path is a version that no reader needs: one before the last state but one."""
        return _path(0) < path < _path(self._previous_state)

    def _state_due(self) -> int:
        return min(max(len(self.state.files) // 8, _FEWEST_CHANGES), _MOST_CHANGES)

    def _versions(self) -> list[int]:
        names = [file.path.rpartition("/")[2] for file in self.root.stored(DIRECTORY)]
        return [int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdecimal()]

    def _read(self, version: int) -> Mapping[str, Any]:
        try:
            value: Mapping[str, Any] = json.loads(self.root.read(_path(version)))
        except (FileNotFoundError, ValueError) as error:
            raise ArchiveDamaged(
                f"version {version} of the manifest in {self.root} cannot be read ({error}); "
                "restore it from a copy"
            ) from None
        if value.get("format") != FORMAT or value.get("version") != version:
            raise ArchiveDamaged(
                f"version {version} of the manifest in {self.root} is none that this program can read; "
                "use a newer one"
            )
        return value


def _path(version: int) -> str:
    return f"{DIRECTORY}/{version:020}.json"
