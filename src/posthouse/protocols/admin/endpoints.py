"""The calls of the JSON API, in the order in which the OpenAPI document shows them."""

from typing import Any, Final

from posthouse.protocols.admin.endpoint import Endpoint
from posthouse.protocols.admin.handlers.group_reset import GROUP_RESET
from posthouse.protocols.admin.handlers.groups import GROUPS
from posthouse.protocols.admin.handlers.overview import OVERVIEW
from posthouse.protocols.admin.handlers.partitions import PARTITIONS
from posthouse.protocols.admin.handlers.records import RECORDS
from posthouse.protocols.admin.handlers.topic_settings import TOPIC_SETTINGS
from posthouse.protocols.admin.handlers.topics import TOPICS

ENDPOINTS: Final[tuple[Endpoint[Any, Any], ...]] = (
    *GROUPS,
    GROUP_RESET,
    OVERVIEW,
    *PARTITIONS,
    *RECORDS,
    *TOPICS,
    *TOPIC_SETTINGS,
)
