"""Events that come at a time: records that the broker delays."""

from base64 import b64encode

import msgspec

from posthouse.client.admin_client import AdminClient, part
from posthouse.consistency.saga.machine import Later


class Timers:
    def __init__(self, admin: AdminClient, topic: str) -> None:
        self._admin = admin
        self._path = f"/v1/topics/{part(topic)}/delayed-records"

    def schedule(self, id: str, later: Later) -> None:
        """It is on disk. Raises ClientError: then it may come nevertheless."""
        value = msgspec.json.encode(later.event)
        body = {
            "key": id,
            "value": b64encode(value).decode(),
            "encoding": "base64",
            "deliver_at": later.at_ms,
        }
        self._admin.post(self._path, body)
