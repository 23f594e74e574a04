"""The domain errors. Protocols translate them; nothing below a protocol knows wire codes.

PosthouseError
├── BadRequest                 the caller is at fault; sending the same again cannot succeed
│   ├── InvalidTopicName
│   ├── InvalidPartitions
│   ├── InvalidConfig
│   ├── TopicExists
│   ├── CorruptBatch           bytes that fail their own checksum or framing
│   ├── InvalidRecord          well-formed bytes that break a rule of the log
│   ├── InvalidTimestamp
│   ├── RecordTooLarge
│   ├── UnsupportedFormat      an older batch format or an unknown compression
│   └── OffsetOutOfRange
├── NotFound
│   ├── UnknownTopic
│   └── UnknownPartition
└── Unavailable                the broker is at fault
    ├── StorageFull            no space left; heals by itself
    ├── StorageFenced          the disk failed; nothing more is acknowledged until a restart
    ├── StorageClosed
    └── DataDamaged            bytes on disk that cannot be trusted
"""


class PosthouseError(Exception):
    """Base of everything the broker raises on purpose."""


class BadRequest(PosthouseError):
    """The caller is at fault."""


class InvalidTopicName(BadRequest):
    pass


class InvalidPartitions(BadRequest):
    pass


class InvalidConfig(BadRequest):
    pass


class TopicExists(BadRequest):
    pass


class CorruptBatch(BadRequest):
    pass


class InvalidRecord(BadRequest):
    pass


class InvalidTimestamp(BadRequest):
    pass


class RecordTooLarge(BadRequest):
    pass


class UnsupportedFormat(BadRequest):
    pass


class OffsetOutOfRange(BadRequest):
    pass


class NotFound(PosthouseError):
    """The thing named does not exist."""


class UnknownTopic(NotFound):
    pass


class UnknownPartition(NotFound):
    pass


class Unavailable(PosthouseError):
    """The broker is at fault, not the caller."""


class StorageFull(Unavailable):
    pass


class StorageFenced(Unavailable):
    pass


class StorageClosed(Unavailable):
    pass


class DataDamaged(Unavailable):
    pass
