"""Whoever is refused again and again hides no change from the audit log, and fills it with nothing."""

import json
from pathlib import Path
from typing import Any

import pytest

from posthouse.broker.access.operations import Kind, Operation
from posthouse.protocols.kafka.codec.generated.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from posthouse.protocols.kafka.errors import ErrorCode
from tests.protocols.kafka.access.scene import connected, log_in, permit, secured
from tests.protocols.kafka.wire import Wire


def lines(data: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (data / "audit.log").read_text().splitlines()]


async def delete(wire: Wire, *names: str) -> set[int]:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names])
    answer = await wire.ask(request, DeleteTopicsResponse)
    return {each.error_code for each in answer.responses}


async def test_a_deletion_behind_1500_refusals(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with secured(tmp_path, data=data) as broker:
        await permit(broker.app.broker, "mallory", Operation.DELETE, Kind.TOPIC, "hers")
        async with connected(broker, "admin") as wire:
            await wire.create_topic("hers")
        async with connected(broker, "mallory") as wire:
            refused = await delete(wire, *(f"no-{number}" for number in range(1500)))
            assert refused == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
            assert await delete(wire, "hers") == {0}
            # On disk when she hears of it, not a second later.
            assert ("User:mallory", "delete") in {
                (each.get("principal"), each["action"]) for each in lines(data) if each["allowed"]
            }
    told = lines(data)
    [summary] = [each for each in told if each["action"] == "left-out"]
    assert (summary["source"], summary["actions"]) == ("User:mallory", {"delete": 1400})


async def test_the_names_of_failed_logins_are_cut(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with secured(tmp_path, data=data) as broker, Wire(broker.kafka) as wire:
        with pytest.raises(AssertionError):
            await log_in(wire, "u" * 16_000, "x")
    [line] = [each for each in lines(data) if each["action"] == "login"]
    assert line["principal"] == "User:" + "u" * 251 + "… (16005 characters)"
