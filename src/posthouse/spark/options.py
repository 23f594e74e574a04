"""The options of the source. Names and meanings are those of Spark's Kafka source.

Errors are raised when the query is planned, with a message that names the right option.
"""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from posthouse.client.security import Security
from posthouse.client.topic_partitions import TopicPartition
from posthouse.records.record_names import Name, NameKind
from posthouse.spark.errors import WrongOption
from posthouse.spark.offsets import Offsets
from posthouse.spark.security import SECURITY, parse_security

EARLIEST = -2
LATEST = -1

_SOURCE = (
    "kafka.bootstrap.servers",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "includeHeaders",
    "key",
    "keyEncoding",
    "messageId",
    "kafka.group.id",
    "kafka.isolation.level",
    *SECURITY,
    "kafka.request.timeout.ms",
    "kafka.default.api.timeout.ms",
    "kafka.max.partition.fetch.bytes",
    "archive",
    "readObjects",
    "objectStore",
)
_WITHOUT_COUNTERPART = (
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafka.client.id",
    "kafka.fetch.max.bytes",
    "kafka.fetch.max.wait.ms",
    "kafka.fetch.min.bytes",
    "kafka.max.poll.records",
    "kafka.max.poll.interval.ms",
    "kafka.session.timeout.ms",
    "kafka.heartbeat.interval.ms",
    "kafka.receive.buffer.bytes",
)
"""Tuning options of the Java consumer, accepted without effect."""
_STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "kafka.group.id")
_BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_SECURITY = re.compile(r"kafka\.(ssl|sasl)\.", re.IGNORECASE)
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """Which partitions are read: exactly one of these is given."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    places: tuple[TopicPartition, ...] = ()

    def wants(self, name: str) -> bool:
        if self.pattern is not None:
            return re.fullmatch(self.pattern, name) is not None
        return name in self.names or any(place.topic == name for place in self.places)


@dataclass(frozen=True, slots=True)
class Position:
    """Where to begin or end: an end of the log, offsets, a time, or times by partition."""

    offset: int | None = None
    offsets: tuple[tuple[TopicPartition, int], ...] = ()
    timestamp: int | None = None
    timestamps: tuple[tuple[TopicPartition, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    bootstrap: str
    topics: TopicSelection
    starting: Position | None
    ending: Position | None
    missing_time_is_end: bool
    """If no record is as recent as a starting time, start at the end instead of failing."""
    fail_on_data_loss: bool
    min_partitions: int
    max_records_per_partition: int | None
    max_offsets: int | None
    min_offsets: int | None
    max_trigger_delay_ms: int
    include_headers: bool
    group: str | None
    is_committed: bool
    timeout: float
    """Timeout of a request."""
    patience: float
    """How long to retry while the broker cannot be reached."""
    security: Security
    fetch_bytes: int
    archive: str | None
    reads_objects: bool = True
    """Whether to read the objects of a shared storage, if the brokers have one."""
    object_store: str | None = None
    """Where the objects are, to be read with our own credentials; None to read signed addresses."""
    name: Name | None = None
    """Only records with this key or message id."""


class Options:
    """The given texts, by case-insensitive name."""

    def __init__(self, given: Mapping[str, str], known: tuple[str, ...]) -> None:
        self._known = {name.lower(): name for name in known}
        self._given: dict[str, str] = {}
        for name, value in given.items():
            if name.lower() not in self._known:
                raise self._unknown(name)
            self._given[name.lower()] = value

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._given

    def text(self, name: str) -> str | None:
        return self._given.get(name.lower())

    def required(self, name: str, example: str) -> str:
        value = self.text(name)
        if not value:
            raise WrongOption(f"the option {name!r} is missing; add .option({name!r}, {example!r})")
        return value

    def boolean(self, name: str, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise WrongOption(f"the option {name!r} is 'true' or 'false', not {value!r}")
        return value.lower() == "true"

    def number(self, name: str, *, least: int = 1) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        try:
            number = int(value)
        except ValueError:
            number = least - 1
        if number < least:
            raise WrongOption(f"the option {name!r} is a whole number from {least} on, not {value!r}")
        return number

    def choice(self, name: str, *allowed: str) -> str:
        """The first is the default."""
        value = (self.text(name) or allowed[0]).lower()
        if value not in allowed:
            raise WrongOption(f"the option {name!r} is one of {', '.join(allowed)}, not {value!r}")
        return value

    def duration_ms(self, name: str, default: int) -> int:
        value = self.text(name)
        if value is None:
            return default
        match = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", value.lower())
        unit = _UNITS_MS.get(match[2] or "ms") if match else None
        if match is None or unit is None:
            raise WrongOption(f"the option {name!r} is a time such as '15m' or '30s', not {value!r}")
        return int(match[1]) * unit

    def parsed_json(self, name: str) -> Any:
        value = self.text(name)
        try:
            return json.loads(value or "")
        except ValueError:
            raise WrongOption(f"the option {name!r} is not valid JSON: {value!r}") from None

    def offsets(self, name: str, lowest: int) -> Offsets:
        found: Offsets = {}
        try:
            for topic, partitions in self.parsed_json(name).items():
                for partition, offset in partitions.items():
                    if type(offset) is not int or offset < lowest or int(partition) < 0:
                        raise ValueError
                    found[TopicPartition(topic, int(partition))] = offset
        except (AttributeError, ValueError):
            raise WrongOption(
                f'the option {name!r} is JSON such as {{"topic": {{"0": 17}}}}, not {self.text(name)!r}'
            ) from None
        return found

    def security(self) -> Security:
        return parse_security(self.text)

    def _unknown(self, name: str) -> WrongOption:
        if _SECURITY.match(name):
            return WrongOption(
                f"there is no option {name!r}; those about TLS and SASL are {', '.join(SECURITY[1:])}"
            )
        close = get_close_matches(name.lower(), self._known, n=1, cutoff=0.5)
        hint = (
            f"did you mean {self._known[close[0]]!r}?" if close else "see docs/spark.md for those there are"
        )
        return WrongOption(f"there is no option {name!r}; {hint}")


def check_names(given: Mapping[str, str]) -> None:
    """Raises if an option of the source does not exist."""
    Options(given, _SOURCE + _WITHOUT_COUNTERPART)


def parse_source(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    options = Options(given, _SOURCE + _WITHOUT_COUNTERPART)
    for name in _BATCH_ONLY if streaming else _STREAM_ONLY:
        if name in options:
            kind, other = ("streaming", "batch") if streaming else ("batch", "streaming")
            raise WrongOption(f"the option {name!r} is for {other} queries; remove it from this {kind} query")
    isolation = options.choice("kafka.isolation.level", "read_committed", "read_uncommitted")
    if "archive" in options and isolation != "read_committed":
        raise WrongOption(
            "an archive has only what was committed; remove the option 'kafka.isolation.level' or 'archive'"
        )
    strategy = options.choice("startingOffsetsByTimestampStrategy", "error", "latest")
    return SourceOptions(
        bootstrap=options.required("kafka.bootstrap.servers", "localhost:9092"),
        topics=_topics(options),
        starting=_starting(options, streaming=streaming),
        ending=_ending(options),
        missing_time_is_end=strategy == "latest",
        fail_on_data_loss=options.boolean("failOnDataLoss", True),
        min_partitions=options.number("minPartitions") or 0,
        max_records_per_partition=options.number("maxRecordsPerPartition"),
        max_offsets=options.number("maxOffsetsPerTrigger"),
        min_offsets=options.number("minOffsetsPerTrigger"),
        max_trigger_delay_ms=options.duration_ms("maxTriggerDelay", 15 * 60_000),
        include_headers=options.boolean("includeHeaders", False),
        group=options.text("kafka.group.id"),
        is_committed=isolation == "read_committed",
        timeout=(options.number("kafka.request.timeout.ms") or 30_000) / 1000,
        patience=(options.number("kafka.default.api.timeout.ms") or 60_000) / 1000,
        security=options.security(),
        fetch_bytes=options.number("kafka.max.partition.fetch.bytes") or 4 * 1024 * 1024,
        archive=options.text("archive"),
        reads_objects=options.boolean("readObjects", True),
        object_store=_object_store(options),
        name=_name(options),
    )


def _name(options: Options) -> Name | None:
    key, id = options.text("key"), options.text("messageId")
    encoding = options.choice("keyEncoding", "text", "base64")
    if key is None:
        if "keyEncoding" in options:
            raise WrongOption("the option 'keyEncoding' has no effect without 'key'; remove it")
        if id == "":
            raise WrongOption("the option 'messageId' is empty; no record has such an id")
        return None if id is None else Name(NameKind.MESSAGE_ID, id.encode())
    if id is not None:
        raise WrongOption("the options 'key' and 'messageId' do not go together; remove one of them")
    if encoding == "text":
        return Name(NameKind.KEY, key.encode())
    try:
        return Name(NameKind.KEY, base64.b64decode(key, validate=True))
    except binascii.Error:
        raise WrongOption(f"the option 'key' is no base64, as 'keyEncoding' says: {key!r}") from None


def _object_store(options: Options) -> str | None:
    url = options.text("objectStore")
    if url is None:
        return None
    if not options.boolean("readObjects", True):
        raise WrongOption("the option 'objectStore' has no effect with readObjects=false; remove one of them")
    if "://" not in url:
        raise WrongOption(
            f"the option 'objectStore' is an address such as s3://BUCKET/PREFIX or file:///DIR, not {url!r}"
        )
    return url


def _topics(options: Options) -> TopicSelection:
    given = [name for name in ("subscribe", "subscribePattern", "assign") if name in options]
    if len(given) != 1:
        said = " and ".join(map(repr, given)) or "none"
        raise WrongOption(
            f"exactly one of 'subscribe', 'subscribePattern' and 'assign' must be set, not {said}"
        )
    text = options.text(given[0]) or ""
    if given[0] == "subscribe":
        names = tuple(sorted({name.strip() for name in text.split(",")} - {""}))
        if not names:
            raise WrongOption("the option 'subscribe' is empty; give names of topics, separated by commas")
        return TopicSelection(names=names)
    if given[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise WrongOption(f"the option 'subscribePattern' is no regular expression: {error}") from None
        return TopicSelection(pattern=text)
    return TopicSelection(places=_assigned(options))


def _assigned(options: Options) -> tuple[TopicPartition, ...]:
    try:
        places = tuple(
            sorted(
                TopicPartition(topic, int(partition))
                for topic, partitions in options.parsed_json("assign").items()
                for partition in partitions
            )
        )
    except (AttributeError, TypeError, ValueError):
        places = ()
    if not places:
        raise WrongOption(
            f"the option 'assign' is JSON such as {{\"topic\": [0, 1]}}, not {options.text('assign')!r}"
        )
    return places


def _starting(options: Options, *, streaming: bool) -> Position | None:
    position = _position(options, "starting")
    if streaming or position is None:
        return position
    if position.offset == LATEST or LATEST in dict(position.offsets).values():
        raise WrongOption(
            "the option 'startingOffsets' of a batch query cannot be the latest, which would read nothing; "
            "use 'earliest', offsets or 'startingTimestamp'"
        )
    return position


def _ending(options: Options) -> Position | None:
    position = _position(options, "ending")
    if position is not None and (position.offset == EARLIEST or EARLIEST in dict(position.offsets).values()):
        raise WrongOption(
            "the option 'endingOffsets' cannot be the earliest, which would read nothing; "
            "use 'latest', offsets or 'endingTimestamp'"
        )
    return position


def _position(options: Options, side: str) -> Position | None:
    """A time takes precedence over times by partition, and these over offsets, as in Spark."""
    if (timestamp := options.number(f"{side}Timestamp", least=0)) is not None:
        return Position(timestamp=timestamp)
    if f"{side}OffsetsByTimestamp" in options:
        times = options.offsets(f"{side}OffsetsByTimestamp", lowest=0)
        return Position(timestamps=tuple(sorted(times.items())))
    text = options.text(f"{side}Offsets")
    if text is None:
        return None
    if text.strip().lower() in ("earliest", "latest"):
        return Position(offset=EARLIEST if text.strip().lower() == "earliest" else LATEST)
    return Position(offsets=tuple(sorted(options.offsets(f"{side}Offsets", lowest=EARLIEST).items())))
