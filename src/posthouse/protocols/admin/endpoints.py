"""The calls of the JSON API, in the order in which the OpenAPI document shows them."""

from typing import Any, Final

from posthouse.protocols.admin.endpoint import Endpoint
from posthouse.protocols.admin.handlers.bindings import BINDINGS
from posthouse.protocols.admin.handlers.exchanges import EXCHANGES
from posthouse.protocols.admin.handlers.overview import OVERVIEW
from posthouse.protocols.admin.handlers.queue_messages import QUEUE_MESSAGES
from posthouse.protocols.admin.handlers.queues import QUEUES
from posthouse.protocols.admin.handlers.topics import TOPICS

ENDPOINTS: Final[tuple[Endpoint[Any, Any], ...]] = (
    OVERVIEW,
    *TOPICS,
    *QUEUES,
    *QUEUE_MESSAGES,
    *EXCHANGES,
    *BINDINGS,
)
