"""Values that do not fit are told in plain words, with what would fit."""

from typing import Any

import msgspec
import pytest

from posthouse.protocols.admin.endpoints import ENDPOINTS
from posthouse.protocols.admin.ingest.json_bodies import NewRecords
from posthouse.protocols.admin.offset_targets import OffsetTarget
from posthouse.protocols.admin.problems import Problem
from posthouse.protocols.admin.wrong_values import in_words

_BY_CALL = {f"{each.method} {each.path}": each for each in ENDPOINTS}
_RECORDS = "/v1/topics/{topic}/records"


@pytest.mark.parametrize(
    ("call", "query", "sentence"),
    [
        ("GET /v1/topics", {"limit": "0"}, "'limit' must be at least 1"),
        ("GET /v1/topics", {"limit": "2000"}, "'limit' must be at most 1000"),
        ("GET /v1/topics", {"limit": "many"}, "'limit' must be a whole number, not a text"),
        (
            "GET /v1/topics",
            {"colour": "red"},
            "there is no parameter 'colour'; there are after, limit, search",
        ),
        ("GET /v1/topics", {"search": "x" * 300}, "'search' must have at most 250 characters"),
        (
            "GET /v1/queues",
            {"state": "sad"},
            "'state' cannot be 'sad'; use one of consumed, empty, stalled, unconsumed",
        ),
        ("GET /v1/transactions", {"all": "perhaps"}, "'all' must be true or false, not a text"),
        (
            f"GET {_RECORDS}",
            {"topic": "t", "partition": "x"},
            "'partition' must be a whole number, not a text",
        ),
        (f"GET {_RECORDS}", {"topic": "t", "after": "x"}, "'after' must match"),
    ],
)
def test_parameters(call: str, query: dict[str, str], sentence: str) -> None:
    wanted = _BY_CALL[call].parameters
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.convert(query, wanted, strict=False)
    assert in_words(raised.value, wanted, "parameter").startswith(sentence)


@pytest.mark.parametrize(
    ("call", "body", "sentence"),
    [
        ("POST /v1/topics", [], "it must be an object, not a list"),
        ("POST /v1/topics", {}, "the field 'name' is missing"),
        ("POST /v1/topics", {"nam": "x"}, "there is no field 'nam'; there are name, partitions, settings"),
        ("POST /v1/topics", {"name": 7}, "'name' must be a text, not a whole number"),
        ("POST /v1/topics", {"name": "a", "partitions": "2"}, "'partitions' must be a whole number or null"),
        (f"POST {_RECORDS}", {"records": []}, "'records' must have at least 1 entry"),
        (f"POST {_RECORDS}", {"records": [{}]}, "the field 'value' of 'records[0]' is missing"),
        (
            f"POST {_RECORDS}",
            {"records": [{"value": 1, "encoding": "hex"}]},
            "'records[0].encoding' cannot be 'hex'; use one of base64, json, text",
        ),
        (
            "POST /v1/acls",
            {"acls": [{"principal": "User:a", "operation": "read", "kind": "moon", "name": "x"}]},
            "'acls[0].kind' cannot be 'moon'; use one of topic, group, cluster, transactional-id",
        ),
        (
            "POST /v1/acls",
            {"acls": [{"principal": "", "operation": "read", "kind": "topic", "name": "x", "colour": 1}]},
            "there is no field 'colour' in 'acls[0]'; there are allow, host, kind",
        ),
        ("PATCH /v1/topics/{topic}/settings", {"a": 7}, "a value must be a text or null, not a whole number"),
        (
            "PUT /v1/quotas",
            {"rates": {"consumer_byte_rate": 0}},
            "'rates.consumer_byte_rate' must be more than 0",
        ),
    ],
)
def test_bodies(call: str, body: Any, sentence: str) -> None:
    wanted = NewRecords if _BY_CALL[call].reader is not None else _BY_CALL[call].body
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.json.decode(msgspec.json.encode(body), type=wanted)
    assert in_words(raised.value, wanted, "field").startswith(sentence)


def test_what_is_not_known_is_told_as_it_is() -> None:
    assert (
        in_words(msgspec.ValidationError("Odd - at `$.x`"), dict[str, int], "field")
        == "'x' is not right: Odd"
    )


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("offset:x", "'offset:x' has no whole number behind the colon"),
        ("shift:", "'shift:' has no whole number behind the colon"),
        ("offset:-1", "the number of 'offset:-1' is not between 0 and"),
        ("time:noon", "'time:noon' is no time; write for example time:2026-01-31T12:00Z"),
        ("duration:1h", "'duration:1h' is no duration; write for example duration:PT1H"),
        ("yesterday", "'yesterday' is not a place to go on from; use earliest"),
    ],
)
def test_targets_of_a_reset(target: str, sentence: str) -> None:
    with pytest.raises(Problem) as raised:
        OffsetTarget.parse(target, 0)
    assert raised.value.detail.startswith(sentence)
