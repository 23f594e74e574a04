"""The domain errors. Protocols translate them; nothing below a protocol knows wire codes.

PosthouseError
├── BadRequest                 the caller is at fault; sending the same again cannot succeed
│   ├── InvalidTopicName
│   ├── InvalidPartitions
│   ├── InvalidConfig
│   ├── TopicExists
│   ├── CorruptBatch           bytes that fail their own checksum or framing
│   ├── InvalidRecord          well-formed bytes that break a rule of the log
│   │   ├── Malformed          a batch that no producer writes
│   │   └── MissingKeys        records without a key, on a compacted topic
│   ├── InvalidTimestamp
│   ├── TooLate                a delayed message that is to be recalled was published before
│   ├── RecordTooLarge
│   │   └── Inflated           small on the wire, but too large when decompressed
│   ├── UnsupportedFormat      an older batch format or an unknown compression
│   ├── OutOfOrderSequence     a producer's batch that does not follow its last one
│   ├── ProducerFenced         a newer producer has taken this one's place
│   ├── InvalidTransaction     the transaction is not in a state that allows this
│   ├── AlreadyDecided         a half message whose producer has decided otherwise before
│   ├── NameTaken              another half message of the group has this name
│   ├── IdempotencyKeyReused   the key was used before, for something else
│   ├── UnknownProducerId      the producer id does not belong to this transactional id
│   ├── TwoPhaseDisabled       the broker is not set to allow transactions without a timeout
│   ├── InvalidTimeout
│   ├── OffsetOutOfRange
│   ├── NotLeased              an acknowledgement by a member that does not hold the record
│   ├── InvalidTopology        a Kafka Streams application whose topics cannot be made to fit
│   ├── TooEarly               the client repeats a request before its interval is over
│   ├── InvalidDefinition      an invalid definition of a queue or an exchange
│   ├── DefinitionMismatch     it exists with another definition
│   ├── AccessRefused          clients may not use or change it
│   ├── QueueLocked            exclusive to another session
│   ├── InUse                  it has consumers or bindings
│   ├── NotEmpty
│   ├── InvalidCredential      a user name, password, verifier or access key that must not be kept
│   ├── AccessKeyExists
│   ├── InvalidAcl
│   ├── InvalidQuota
│   ├── InvalidFilter          an expression that selects messages is malformed or too large
│   ├── InvalidWebhook
│   ├── WebhookExists
│   ├── LoginFailed            wrong credentials, or too many connections
│   └── QueueFull              the queue takes no more messages
│       └── QueueBlocked       the publisher has to wait for room
├── NotFound
│   ├── UnknownTopic
│   ├── UnknownPartition
│   ├── UnknownTransaction
│   ├── UnknownSubscription    to clients' metrics
│   ├── UnknownNamespace
│   ├── UnknownExchange
│   ├── UnknownUser
│   ├── UnknownAccessKey
│   ├── UnknownWebhook
│   └── UnknownQueue
└── Unavailable                the broker is at fault, or busy; a retry may succeed
    ├── ConcurrentTransaction  the previous transaction is ending
    ├── NotLeader              another broker must do it: only that one may write to the partition
    ├── NotCoordinator         another broker coordinates this group, or none at the moment
    ├── CoordinatorLoading     this broker is about to coordinate this group
    ├── StorageFull            no space left; heals by itself
    ├── StorageFenced          the disk failed; nothing more is acknowledged until a restart
    ├── StorageClosed
    ├── GroupsClosed           the broker is stopping
    ├── TooManyKeys            so many idempotency keys are remembered that there is no room for another
    └── DataDamaged            bytes on disk that cannot be trusted
"""

from collections.abc import Sequence

from posthouse.model.ids import MemberId


class PosthouseError(Exception):
    """Base of all errors that the broker raises on purpose."""


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


class Malformed(InvalidRecord):
    pass


class MissingKeys(InvalidRecord):
    def __init__(self, positions: Sequence[int]) -> None:
        super().__init__("a record of the batch has no key; the topic is compacted")
        self.positions = positions
        """Positions of the records without a key in the batch, counted from 0; at most a thousand."""


class InvalidTimestamp(BadRequest):
    pass


class TooLate(BadRequest):
    pass


class RecordTooLarge(BadRequest):
    pass


class Inflated(RecordTooLarge):
    pass


class UnsupportedFormat(BadRequest):
    pass


class OutOfOrderSequence(BadRequest):
    pass


class ProducerFenced(BadRequest):
    pass


class InvalidTransaction(BadRequest):
    pass


class AlreadyDecided(BadRequest):
    pass


class NameTaken(BadRequest):
    pass


class IdempotencyKeyReused(BadRequest):
    pass


class UnknownProducerId(BadRequest):
    pass


class TwoPhaseDisabled(BadRequest):
    pass


class InvalidTimeout(BadRequest):
    pass


class OffsetOutOfRange(BadRequest):
    pass


class NotLeased(BadRequest):
    pass


class InvalidGroupId(BadRequest):
    pass


class InvalidSessionTimeout(BadRequest):
    pass


class InconsistentProtocol(BadRequest):
    pass


class UnsupportedAssignor(BadRequest):
    pass


class InvalidPattern(BadRequest):
    pass


class InvalidTopology(BadRequest):
    pass


class TooEarly(BadRequest):
    """The client repeats a request before its interval is over."""


class GroupFull(BadRequest):
    pass


class GroupNotEmpty(BadRequest):
    pass


class GroupSubscribed(BadRequest):
    pass


class OffsetMetadataTooLarge(BadRequest):
    pass


class InvalidDefinition(BadRequest):
    pass


class DefinitionMismatch(BadRequest):
    def __init__(self, *, kind: str, name: str, field: str, known: object, wanted: object) -> None:
        super().__init__(f"{kind} {name!r} has {field} {known}, not {wanted}")
        self.kind = kind
        self.name = name
        self.field = field
        self.known = known
        self.wanted = wanted


class AccessRefused(BadRequest):
    pass


class QueueLocked(BadRequest):
    pass


class InUse(BadRequest):
    pass


class NotEmpty(BadRequest):
    pass


class InvalidCredential(BadRequest):
    pass


class AccessKeyExists(BadRequest):
    pass


class InvalidAcl(BadRequest):
    pass


class InvalidQuota(BadRequest):
    pass


class InvalidFilter(BadRequest):
    def __init__(self, position: int, expected: str, found: str) -> None:
        super().__init__(f"invalid filter at character {position}: expected {expected}, found {found}")
        self.position = position
        """Character of the expression, counted from 1."""
        self.expected = expected
        self.found = found


class InvalidWebhook(BadRequest):
    pass


class WebhookExists(BadRequest):
    pass


class LoginFailed(BadRequest):
    """Its text must not help a client that guesses passwords."""


class QueueFull(BadRequest):
    pass


class QueueBlocked(QueueFull):
    """The publisher has to wait until there is room."""

    def __init__(self, queue: object) -> None:
        super().__init__("the queue is full; publishing continues when there is room")
        self.queue = queue


class NotFound(PosthouseError):
    """The named object does not exist."""


class UnknownTopic(NotFound):
    pass


class UnknownPartition(NotFound):
    pass


class UnknownTransaction(NotFound):
    pass


class UnknownGroup(NotFound):
    pass


class UnknownSubscription(NotFound):
    pass


class UnknownNamespace(NotFound):
    pass


class UnknownExchange(NotFound):
    pass


class UnknownUser(NotFound):
    pass


class UnknownAccessKey(NotFound):
    pass


class UnknownWebhook(NotFound):
    pass


class UnknownQueue(NotFound):
    pass


class MembershipError(PosthouseError):
    """The caller's view of its membership differs from the group's."""


class UnknownMember(MembershipError):
    pass


class MemberIdRequired(MembershipError):
    def __init__(self, member_id: MemberId) -> None:
        super().__init__(f"join again as {member_id!r}")
        self.member_id = member_id


class IllegalGeneration(MembershipError):
    pass


class RebalanceInProgress(MembershipError):
    pass


class FencedInstance(MembershipError):
    pass


class UnreleasedInstance(MembershipError):
    pass


class FencedMemberEpoch(MembershipError):
    pass


class StaleMemberEpoch(MembershipError):
    pass


class UnstableOffset(MembershipError):
    pass


class Unavailable(PosthouseError):
    """The broker is at fault, not the caller."""


class ConcurrentTransaction(Unavailable):
    pass


class NotLeader(Unavailable):
    pass


class StorageFull(Unavailable):
    pass


class StorageFenced(Unavailable):
    pass


class StorageClosed(Unavailable):
    pass


class NotCoordinator(Unavailable):
    pass


class CoordinatorLoading(Unavailable):
    pass


class GroupsClosed(Unavailable):
    pass


class TooManyKeys(Unavailable):
    pass


class DataDamaged(Unavailable):
    def __init__(self, message: str, next_offset: int | None = None) -> None:
        super().__init__(message)
        self.next_offset = next_offset
        """For a partition that is being read: the next readable offset, if it is known."""
