"""The options of the sink. Names are those of Spark's Kafka sink where it has the same.

Errors are raised when the query is planned, with a message that names the right option.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from posthouse.client.cluster import Cluster
from posthouse.client.security import Security
from posthouse.records.compression import Codec
from posthouse.spark.errors import WrongOption
from posthouse.spark.options import Options
from posthouse.spark.security import SECURITY

EXACTLY_ONCE = "exactly-once"
AT_LEAST_ONCE = "at-least-once"

_SINK = (
    "kafka.bootstrap.servers",
    "topic",
    "appId",
    "batchId",
    "delivery",
    "kafka.acks",
    "kafka.batch.size",
    "kafka.compression.type",
    "kafka.delivery.timeout.ms",
    "kafka.enable.idempotence",
    "kafka.request.timeout.ms",
    *SECURITY,
    "kafka.transaction.timeout.ms",
)
_OF_SPARK = ("checkpointLocation", "path", "queryName", "outputMode")
"""Spark's own options, which it passes on."""
_WITHOUT_COUNTERPART = (
    "includeHeaders",
    "kafka.buffer.memory",
    "kafka.client.id",
    "kafka.linger.ms",
    "kafka.max.block.ms",
    "kafka.max.in.flight.requests.per.connection",
    "kafka.max.request.size",
    "kafka.retries",
    "kafka.retry.backoff.ms",
    "kafka.send.buffer.bytes",
)
"""Tuning options of the Java producer, accepted without effect."""
_CODECS = tuple(codec.name.lower() for codec in Codec)
_LONGEST_NAME = 200
_DEFAULT_TRANSACTION_MS = 15 * 60_000
_DEFAULT_PATIENCE_MS = 120_000
_DEFAULT_BATCH = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    bootstrap: str
    topic: str | None
    """For all rows; None: the column topic has the topic of each row."""
    name: str | None
    """The name under which committed epochs are stored; None: the id of the streaming query."""
    batch_id: int | None
    """For a repeatable batch write: its number under the name."""
    delivery: str
    transaction_timeout_ms: int
    codec: Codec
    batch_bytes: int
    timeout: float
    """Timeout of a request."""
    patience: float
    """How long to retry while the broker cannot be reached."""
    security: Security

    def cluster(self) -> Cluster:
        return Cluster(self.bootstrap, timeout=self.timeout, security=self.security)

    @property
    def is_exactly_once(self) -> bool:
        return self.delivery == EXACTLY_ONCE

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Self:
        options = Options(given, _SINK + _OF_SPARK + _WITHOUT_COUNTERPART)
        options.choice("kafka.acks", "all", "-1")
        options.choice("kafka.enable.idempotence", "true")
        topic = options.text("topic")
        if topic == "":
            raise WrongOption(
                "the option 'topic' is empty; name a topic, or leave it out and select a column topic"
            )
        parsed = cls(
            bootstrap=options.required("kafka.bootstrap.servers", "localhost:9092"),
            topic=topic,
            name=_name(options),
            batch_id=options.number("batchId", least=0),
            delivery=options.choice("delivery", EXACTLY_ONCE, AT_LEAST_ONCE),
            transaction_timeout_ms=options.number("kafka.transaction.timeout.ms") or _DEFAULT_TRANSACTION_MS,
            codec=Codec[options.choice("kafka.compression.type", *_CODECS).upper()],
            batch_bytes=options.number("kafka.batch.size") or _DEFAULT_BATCH,
            timeout=(options.number("kafka.request.timeout.ms") or 30_000) / 1000,
            security=options.security(),
            patience=(options.number("kafka.delivery.timeout.ms") or _DEFAULT_PATIENCE_MS) / 1000,
        )
        if parsed.batch_id is not None and (parsed.name is None or not parsed.is_exactly_once):
            raise WrongOption(
                "the option 'batchId' needs 'appId' and exactly-once delivery; "
                "set .option('appId', 'a-name') or remove it"
            )
        return parsed


def _name(options: Options) -> str | None:
    name = options.text("appId")
    if name is not None and not 0 < len(name) <= _LONGEST_NAME:
        raise WrongOption(f"the option 'appId' has 1 to {_LONGEST_NAME} characters, not {len(name)}")
    return name
