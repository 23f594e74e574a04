"""The calls of the JSON API, in the order in which the OpenAPI document shows them."""

from typing import Any, Final

from posthouse.protocols.admin.endpoint import Endpoint
from posthouse.protocols.admin.handlers.access_keys import ACCESS_KEYS
from posthouse.protocols.admin.handlers.acls import ACLS
from posthouse.protocols.admin.handlers.archive import ARCHIVE
from posthouse.protocols.admin.handlers.audit import AUDIT
from posthouse.protocols.admin.handlers.bindings import BINDINGS
from posthouse.protocols.admin.handlers.brokers import BROKERS
from posthouse.protocols.admin.handlers.cluster import CLUSTER
from posthouse.protocols.admin.handlers.connections import CONNECTIONS
from posthouse.protocols.admin.handlers.delayed_records import DELAYED_RECORDS
from posthouse.protocols.admin.handlers.delivery_limits import DELIVERY_LIMITS
from posthouse.protocols.admin.handlers.disk import DISK
from posthouse.protocols.admin.handlers.events import EVENTS
from posthouse.protocols.admin.handlers.exchanges import EXCHANGES
from posthouse.protocols.admin.handlers.group_messages import GROUP_MESSAGES
from posthouse.protocols.admin.handlers.group_reset import GROUP_RESET
from posthouse.protocols.admin.handlers.groups import GROUPS
from posthouse.protocols.admin.handlers.half_messages import HALF_MESSAGES
from posthouse.protocols.admin.handlers.overview import OVERVIEW
from posthouse.protocols.admin.handlers.partitions import PARTITIONS
from posthouse.protocols.admin.handlers.produce import PRODUCE
from posthouse.protocols.admin.handlers.queue_messages import QUEUE_MESSAGES
from posthouse.protocols.admin.handlers.queues import QUEUES
from posthouse.protocols.admin.handlers.quotas import QUOTAS
from posthouse.protocols.admin.handlers.record_stream import RECORD_STREAM
from posthouse.protocols.admin.handlers.records import RECORDS
from posthouse.protocols.admin.handlers.sagas import SAGAS
from posthouse.protocols.admin.handlers.settings import SETTINGS
from posthouse.protocols.admin.handlers.storage import STORAGE
from posthouse.protocols.admin.handlers.topic_settings import TOPIC_SETTINGS
from posthouse.protocols.admin.handlers.topics import TOPICS
from posthouse.protocols.admin.handlers.transactions import TRANSACTIONS
from posthouse.protocols.admin.handlers.users import USERS
from posthouse.protocols.admin.handlers.webhooks import WEBHOOKS

ENDPOINTS: Final[tuple[Endpoint[Any, Any], ...]] = (
    *ACLS,
    *ARCHIVE,
    AUDIT,
    *BINDINGS,
    BROKERS,
    *CLUSTER,
    *CONNECTIONS,
    *DELIVERY_LIMITS,
    DISK,
    EVENTS,
    *EXCHANGES,
    *GROUPS,
    GROUP_RESET,
    *HALF_MESSAGES,
    OVERVIEW,
    *PARTITIONS,
    *QUEUES,
    *QUEUE_MESSAGES,
    *QUOTAS,
    *RECORDS,
    PRODUCE,
    RECORD_STREAM,
    *GROUP_MESSAGES,
    DELAYED_RECORDS,
    *SAGAS,
    SETTINGS,
    STORAGE,
    *TOPICS,
    *TOPIC_SETTINGS,
    *TRANSACTIONS,
    *USERS,
    *ACCESS_KEYS,
    *WEBHOOKS,
)
