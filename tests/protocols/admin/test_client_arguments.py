"""Declarations by AMQP clients, which send numbers of several widths: every list that shows them."""

import json
from typing import Any

import pytest

from tests.protocols.admin.conftest import Scene

_NUMBERS = {"x-max-length": 100, "x-message-ttl": 3000, "x-expires": 3_600_000, "x-max-length-bytes": 2**40}
"""Sent in 1, 2, 4 and 8 bytes."""
_OF_BINDING = {"x-match": "all", "small": 7, "large": 2**31 - 1, "half": 0.5}


@pytest.fixture
async def declared(scene: Scene) -> Scene:
    queue = await scene.channel.declare_queue("q", durable=True, arguments=_NUMBERS)
    exchange = await scene.channel.declare_exchange("x", "headers", arguments={"note": 3})
    await queue.bind(exchange, arguments=_OF_BINDING)
    await queue.consume(_hold, arguments={"x-priority": 5})
    await scene.publish(b"1", headers={"count": 3, "nested": {"deep": [2000]}})
    return scene


async def _hold(message: object) -> None:
    """Never acknowledge it."""


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("/v1/queues/%2F/q", {**_NUMBERS, "message_ttl_ms": 3000, "expires_ms": 3_600_000, "priority": 5}),
        ("/v1/queues", {"name": "q"}),
        ("/v1/exchanges?search=x", {"note": 3}),
        ("/v1/bindings", _OF_BINDING),
        ("/v1/connections", {"protocol": "amqp"}),
        ("/api/queues", _NUMBERS),
        ("/api/queues?page=1", _NUMBERS),
        ("/api/queues/%2F/q", _NUMBERS),
        ("/api/exchanges", {"note": 3}),
        ("/api/bindings", _OF_BINDING),
        ("/api/consumers", {"consumer_tag": None}),
        ("/api/connections", {"client_properties": None}),
        ("/api/definitions", {**_NUMBERS, "note": 3, **_OF_BINDING}),
    ],
)
async def test_numbers_are_shown_as_they_were_sent(declared: Scene, path: str, parts: dict[str, Any]) -> None:
    answer = await declared.http.get(path)
    assert answer.status_code == 200, answer.text
    found: dict[str, list[Any]] = {}
    json.loads(answer.text, object_pairs_hook=lambda pairs: _remember(found, pairs))
    for name, value in parts.items():
        assert name in found and (value is None or value in found[name]), name


def _remember(found: dict[str, list[Any]], pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return dict(pairs)


async def test_events_tell_of_a_queue_with_numbers(declared: Scene) -> None:
    async with declared.http.stream("GET", "/v1/events?topics=queues") as response:
        await declared.channel.declare_queue("another", arguments={"x-max-length": 5, "x-max-priority": 3})
        async for line in response.aiter_lines():
            if line.startswith("data:") and '"another"' in line:
                break
        else:
            pytest.fail("the stream ended")
