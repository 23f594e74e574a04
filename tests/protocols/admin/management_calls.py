"""Calls of RabbitMQ's management API for messages of the queue q."""

from typing import Any

import httpx

from tests.protocols.admin.conftest import Scene

Q = "/api/queues/%2F/q"
PUBLISH = "/api/exchanges/%2F/amq.default/publish"
GET = {"count": 5, "ackmode": "ack_requeue_false", "encoding": "auto"}


async def publish(scene: Scene, payload: str = "hello", key: str = "q", **changes: Any) -> httpx.Response:
    body = {"properties": {}, "routing_key": key, "payload": payload, "payload_encoding": "string"}
    return await scene.http.post(PUBLISH, json=body | changes)
