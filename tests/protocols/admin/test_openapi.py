"""The OpenAPI document: complete, and true by schemathesis."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from schemathesis.engine import Status, events, from_schema
from schemathesis.engine.recorder import CheckNode

from posthouse.protocols.admin.endpoints import ENDPOINTS
from posthouse.protocols.admin.openapi import document
from posthouse.testing import ThreadBroker
from tests.protocols.admin.clients import USERS

pytestmark = pytest.mark.timeout(600)

_ENDLESS = ("/v1/events", "/v1/topics/{topic}/records/stream")
_OF_ANY_NAME = (
    "/v1/users",
    "/v1/groups/{group}/reset",
    "/v1/groups/{group}/limits",
    "/v1/half-messages/checks/",
)
_SEED = 13


def _operations() -> list[tuple[str, str, dict[str, Any]]]:
    found = document(ENDPOINTS)
    return [
        (path, method, operation)
        for path, methods in found["paths"].items()
        for method, operation in methods.items()
    ]


@pytest.mark.parametrize(("path", "method", "operation"), _operations(), ids=lambda each: str(each)[:50])
def test_every_operation_is_described(path: str, method: str, operation: dict[str, Any]) -> None:
    assert operation["summary"]
    assert operation["description"]
    for parameter in operation["parameters"]:
        assert parameter["description"], parameter["name"]
        assert parameter["required"] == (parameter["in"] == "path")
    statuses = set(operation["responses"])
    assert {"400", "401", "403"} < statuses
    assert statuses & {"200", "201", "204"}
    if "{" in path and not path.startswith(_OF_ANY_NAME):
        assert "404" in statuses
    if "requestBody" in operation:
        assert "413" in statuses


def test_operation_ids_are_unique() -> None:
    ids = [operation["operationId"] for _, _, operation in _operations()]
    assert len(set(ids)) == len(ids)


def _config(**more: Any) -> schemathesis.Config:
    return schemathesis.Config.from_dict(
        {
            "seed": _SEED,
            "request-timeout": 60,
            "generation": {"max-examples": 3, "database": "none"},
            "phases": {"stateful": {"enabled": False}},
            "checks": {
                # Some rules have no form in JSON Schema: what topic settings there are, what is base64,
                # that partitions only become more, that an idempotency key is for one request.
                "positive_data_acceptance": {
                    "expected-statuses": ["2xx", "400", "401", "403", "404", "409", "413", "422"]
                }
            },
            **more,
        }
    )


def _failures(
    broker: ThreadBroker, config: schemathesis.Config, *, only_known_names: bool = False
) -> Iterator[str]:
    """What schemathesis finds, in words."""
    schema = schemathesis.openapi.from_url(f"http://{broker.admin}/v1/openapi.json", config=config).exclude(
        path=list(_ENDLESS)
    )
    schema.hook("map_query")(_without_waiting)
    if only_known_names:
        schema = schema.exclude(method="DELETE")
        schema.hook("map_path_parameters")(_with_known_names)
    for event in from_schema(schema).execute():
        if isinstance(event, events.NonFatalError | events.FatalError):
            yield str(event)
        elif isinstance(event, events.ScenarioFinished) and event.status is not Status.SUCCESS:
            for checks in event.recorder.checks.values():
                yield from (_told(event.label, each) for each in checks if each.failure_info)


def _without_waiting(context: Any, query: dict[str, Any] | None) -> dict[str, Any] | None:
    if query and isinstance(wait := query.get("wait_ms"), int) and wait > 0:
        return {**query, "wait_ms": 1}
    return query


def _with_known_names(context: Any, path_parameters: dict[str, Any] | None) -> dict[str, Any] | None:
    if path_parameters is None:
        return None
    known = {"topic": "0", "group": "0", "namespace": "/", "queue": "0", "id": "0"}
    return {name: known.get(name, value) for name, value in path_parameters.items()}


def _told(label: str | None, check: CheckNode) -> str:
    assert check.failure_info is not None
    failure = check.failure_info.failure
    return f"{label}: {check.name}: {failure.title}: {failure.message}\n{check.failure_info.code_sample}"


@pytest.fixture
def broker() -> Iterator[ThreadBroker]:
    with ThreadBroker() as running:
        _fill(running, None)
        yield running


def _fill(broker: ThreadBroker, auth: tuple[str, str] | None) -> None:
    with httpx.Client(base_url=f"http://{broker.admin}", auth=auth) as http:
        http.post("/v1/topics", json={"name": "0", "partitions": 2}).raise_for_status()
        records = [{"key": str(each), "value": {"n": each}, "encoding": "json"} for each in range(20)]
        http.post("/v1/topics/0/records", json={"records": records}).raise_for_status()
        http.post("/v1/groups/0/reset", json={"topics": ["0"], "to": "earliest"}).raise_for_status()


def test_schemathesis_finds_nothing(broker: ThreadBroker) -> None:
    assert "\n".join(_failures(broker, _config())) == ""


def test_schemathesis_finds_nothing_where_names_exist(broker: ThreadBroker) -> None:
    config = _config(generation={"mode": "positive", "max-examples": 4, "database": "none"})
    assert "\n".join(_failures(broker, config, only_known_names=True)) == ""


def test_schemathesis_finds_nothing_with_the_rights_of_a_plain_user() -> None:
    with ThreadBroker(users=USERS) as broker:
        _fill(broker, ("admin", USERS["admin"]))
        auth = {"basic": {"username": "ann", "password": USERS["ann"]}}
        assert "\n".join(_failures(broker, _config(auth=auth))) == ""
