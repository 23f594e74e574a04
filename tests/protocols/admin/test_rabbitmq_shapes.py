"""Answers have the fields of RabbitMQ's, with the same JSON types.

`rabbitmq_shapes.json` was recorded from RabbitMQ 3.10.8 with one connection, two channels, a consumer and a
queue of twenty messages. What only Erlang's runtime has (garbage collection, its database) is left out,
and so are statistics of single channels and exchanges.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.protocols.admin.conftest import Scene

SHAPES: dict[str, Any] = json.loads(Path(__file__).with_name("rabbitmq_shapes.json").read_text())


def _differences(where: str, expected: Any, found: Any) -> list[str]:
    if isinstance(expected, dict):
        if not isinstance(found, dict):
            return [f"{where} is no object: {found!r}"]
        missing = [f"{where}.{name} is missing" for name in expected if name not in found]
        return missing + [
            each
            for name in expected
            if name in found
            for each in _differences(f"{where}.{name}", expected[name], found[name])
        ]
    if isinstance(expected, list):
        if not isinstance(found, list):
            return [f"{where} is no list: {found!r}"]
        return _differences(f"{where}[]", expected[0], found[0]) if expected and found else []
    return [] if _kind(found) == expected else [f"{where} is {found!r}, and should be a {expected}"]


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, int | float) else type(value).__name__.replace("str", "string")


@pytest.mark.parametrize("path", SHAPES)
async def test_fields_and_types(scene: Scene, path: str) -> None:
    await scene.channel.set_qos(5)
    queue = await scene.channel.declare_queue("q1", durable=True)
    await scene.publish(*(b"hello" for _ in range(20)), key="q1")
    await queue.consume(_hold)
    found = (await scene.http.get(f"/api/{path}")).json()
    assert _differences(path, SHAPES[path], found) == []


async def _hold(message: object) -> None:
    """Never acknowledge it."""
