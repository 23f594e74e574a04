"""The spaces of the broker's state. Their numbers are stored: a new one gets a new number."""

from enum import IntEnum


class Space(IntEnum):
    """Kinds of broker state that storage keeps as keys and values without knowing what they mean."""

    OFFSETS = 1
    TRANSACTIONS = 2
    TRANSACTION_OFFSETS = 3
    PRODUCER_IDS = 4
    GROUPS = 5
    PRODUCERS = 6
    """Producer state of partitions: used by storage itself."""
    FENCES = 7
    EXCHANGES = 8
    BINDINGS = 9
    QUEUES = 10
    QUEUE_PROGRESS = 11
    SCHEDULE = 12
    SHARE_GROUPS = 13
    SHARE_PROGRESS = 14
    GROUP_CONFIGS = 15
    USERS = 16
    ACLS = 17
    QUOTAS = 18
    STREAMS_GROUPS = 19
    CLIENT_METRICS = 20
    BROKER_CONFIGS = 21
    SECRETS = 25
    ADMISSIONS = 26
    """Transactions whose batches any broker may append: the function `commit_group` looks them up."""
    REFERRALS = 27
    """Committed transactions whose records queues do not have yet: who serves the queues refers to them."""
    SOURCES = 28
    """Names of topics that feed queues, whether there is such a topic or not. Only a shared storage has them:
    any broker may create the topic, and the database gives it the scope that is stored here."""
    DUE = 29
    """Delayed messages that are due in a namespace of another broker than that of their schedule."""
    HALF_MESSAGES = 30
    """What was decided of half messages."""
    ACCESS_KEYS = 31
    """Of users who sign their requests."""
    SALVAGED = 32
    """Where the batches begin that recovery has kept without a commit that proves them: by partition."""
    GROUP_MEMBERS = 33
    """Members of groups that move from one broker to another. The next one removes what it has read."""
    WEBHOOKS = 35
    DELIVERY_LIMITS = 37
    """What operators allow the consumers of queues: by the name of the queue, declared or not."""


CLUSTER_WIDE = frozenset(
    {
        Space.GROUP_CONFIGS,
        Space.USERS,
        Space.ACCESS_KEYS,
        Space.ACLS,
        Space.QUOTAS,
        Space.CLIENT_METRICS,
        Space.BROKER_CONFIGS,
        Space.SECRETS,
    }
)
"""State that every broker of a cluster keeps in memory."""

OF_GROUPS = frozenset(
    {
        Space.OFFSETS,
        Space.GROUPS,
        Space.GROUP_MEMBERS,
        Space.STREAMS_GROUPS,
        Space.SHARE_GROUPS,
        Space.SHARE_PROGRESS,
    }
)
"""State of the brokers that hold the scopes of the groups."""

OF_TRANSACTIONS = frozenset({Space.TRANSACTIONS, Space.TRANSACTION_OFFSETS, Space.FENCES, Space.ADMISSIONS})
"""State of the brokers that hold the scopes of the transactional ids."""

OF_NAMESPACES = frozenset(
    {
        Space.EXCHANGES,
        Space.BINDINGS,
        Space.QUEUES,
        Space.QUEUE_PROGRESS,
        Space.SCHEDULE,
        Space.REFERRALS,
        Space.SOURCES,
        Space.DUE,
        Space.DELIVERY_LIMITS,
    }
)
"""State of the brokers that hold the scopes of the namespaces."""

COORDINATORS = frozenset(Space) - CLUSTER_WIDE - OF_GROUPS - OF_TRANSACTIONS - OF_NAMESPACES
"""State of the coordinator."""
