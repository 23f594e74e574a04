"""The OpenAPI document: made of the declarations of the endpoints, so that it cannot say anything else."""

from collections.abc import Iterable
from functools import cache
from typing import Any

import msgspec

from posthouse import __version__
from posthouse.protocols.admin.body_reader import BodyReader
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.endpoint import Endpoint, NoBody
from posthouse.protocols.admin.endpoints import ENDPOINTS
from posthouse.protocols.admin.problems import CONTENT_TYPE
from posthouse.protocols.admin.request import HttpRequest
from posthouse.protocols.admin.response import JSON, Response
from posthouse.protocols.admin.router import Parameters, Route

_EVERY_PROBLEM = (400, 401, 403, 415, 421, 500, 503)
_OF_BODIES = (413,)
_OF_CHANGES = (507,)
_READING = "GET"
_PROBLEMS: dict[int, str] = {
    400: "The request is wrong; `detail` says what about it.",
    401: "Log in with HTTP Basic.",
    403: "The user may not do this, or the request comes from a page of another site.",
    404: "The path, or what it names, does not exist.",
    409: "The state of the object does not allow it; `detail` says why.",
    413: "The body, or a record in it, is too large.",
    415: "The body is of a type that the call does not take; most take JSON.",
    422: "The idempotency key was used for another request.",
    421: "Without authentication the broker answers only for its address and localhost.",
    429: "The user has too many streams open; close one.",
    500: "The broker failed; its log has the reason.",
    503: "The broker cannot do this now; try again later.",
    507: "The disk is full.",
}
_TAGS: dict[str, str] = {
    "access": "Users, permissions and quotas.",
    "archive": "What the broker knows of the archive and of pipelines.",
    "bindings": "Which messages of an exchange go where.",
    "broker": "The broker itself.",
    "connections": "Clients of all protocols.",
    "events": "Changes, pushed by the broker.",
    "exchanges": "Exchanges of AMQP clients.",
    "groups": "Consumer groups of all kinds, and their offsets.",
    "half-messages": "Messages that are visible when their producer has committed them.",
    "queues": "Queues of AMQP clients, and their messages.",
    "records": "Records of topics.",
    "sagas": "Steps of several services, and what takes them back: how far they are.",
    "topics": "Topics, their partitions and settings.",
    "transactions": "Transactions of producers.",
    "webhooks": "Messages that are pushed to HTTP endpoints.",
}
_REFERENCES = "#/components/schemas/{name}"


class ProblemDetails(msgspec.Struct, frozen=True, kw_only=True):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    error: str | msgspec.UnsetType = msgspec.UNSET


def document(endpoints: Iterable[Endpoint[Any, Any]]) -> dict[str, Any]:
    endpoints = list(endpoints)
    types = {id(each): each for endpoint in endpoints for each in _types(endpoint)}
    types[id(ProblemDetails)] = ProblemDetails
    schemas, components = msgspec.json.schema_components(types.values(), ref_template=_REFERENCES)
    schema_of = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for each in endpoints:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each, schema_of, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Posthouse",
            "version": __version__,
            "description": "The JSON API of the broker. Lists come in pages: `next` of one is `after` of the "
            "following. Errors are problem details (RFC 9457). Names in paths are percent-encoded: the "
            "namespace / is %2F.",
        },
        "tags": [{"name": name, "description": _TAGS[name]} for name in sorted({e.tag for e in endpoints})],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"basic": {"type": "http", "scheme": "basic"}},
        },
        "security": [{"basic": []}, {}],
    }


def _types(endpoint: Endpoint[Any, Any]) -> list[Any]:
    found = [endpoint.parameters, endpoint.body, endpoint.result]
    if endpoint.reader is not None:
        found += endpoint.reader.headers.values()
        for types in endpoint.reader.types.values():
            found += types if isinstance(types, tuple) else ()
    return [each for each in found if each is not None]


def _operation(
    endpoint: Endpoint[Any, Any], schema_of: dict[int, Any], components: dict[str, Any]
) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": endpoint.operation_id,
        "summary": endpoint.summary,
        "description": endpoint.description or f"{endpoint.summary}.",
        "tags": [endpoint.tag],
        "parameters": _parameters(endpoint, _resolved(schema_of[id(endpoint.parameters)], components)),
        "responses": _responses(endpoint, schema_of),
    }
    if endpoint.reader is not None:
        operation["parameters"] += _headers(endpoint.reader, schema_of)
        if endpoint.reader.types:
            operation["requestBody"] = {"required": True, "content": _contents(endpoint.reader, schema_of)}
    elif endpoint.body is not NoBody:
        operation["requestBody"] = {
            "required": True,
            "content": {JSON: {"schema": schema_of[id(endpoint.body)]}},
        }
    return operation


def _contents(reader: BodyReader[Any, Any], schema_of: dict[int, Any]) -> dict[str, Any]:
    contents: dict[str, Any] = {}
    for media_type, types in reader.types.items():
        is_any_of = isinstance(types, tuple)
        schema = {"anyOf": [schema_of[id(each)] for each in types]} if is_any_of else types
        contents[media_type] = {"schema": schema}
    return contents


def _headers(reader: BodyReader[Any, Any], schema_of: dict[int, Any]) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "header",
            "required": False,
            "description": _description(schema_of[id(each)]),
            "schema": _parameter_schema(schema_of[id(each)]),
        }
        for name, each in reader.headers.items()
    ]


def _resolved(schema: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    reference = schema.get("$ref")
    return schema if reference is None else components[reference.rpartition("/")[2]]


def _parameters(endpoint: Endpoint[Any, Any], schema: dict[str, Any]) -> list[dict[str, Any]]:
    required = schema.get("required", [])
    found = []
    for name, each in schema.get("properties", {}).items():
        in_path = f"{{{name}}}" in endpoint.path
        found.append(
            {
                "name": name,
                "in": "path" if in_path else "query",
                "required": in_path or name in required,
                "description": _description(each),
                "schema": _parameter_schema(each),
            }
        )
    return found


def _description(schema: dict[str, Any]) -> str:
    """Of the type itself, or of what it may be besides null."""
    found = [schema, *schema.get("anyOf", ())]
    return next((str(each["description"]) for each in found if "description" in each), "")


def _parameter_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter that is not given is null; none can be given as null."""
    found = {key: value for key, value in schema.items() if key != "description"}
    if "anyOf" in found:
        [given] = [each for each in found.pop("anyOf") if each != {"type": "null"}]
        found |= {key: value for key, value in given.items() if key != "description"}
    if "enum" in found:
        found["enum"] = [each for each in found["enum"] if each is not None]
    if found.get("default", ...) is None:
        del found["default"]
    return found


def _responses(endpoint: Endpoint[Any, Any], schema_of: dict[int, Any]) -> dict[str, Any]:
    problem = {CONTENT_TYPE: {"schema": schema_of[id(ProblemDetails)]}}
    possible = {*_EVERY_PROBLEM, *endpoint.problems}
    if endpoint.body is not NoBody or (endpoint.reader is not None and endpoint.reader.types):
        possible |= set(_OF_BODIES)
    if endpoint.method != _READING:
        possible |= set(_OF_CHANGES)
    responses: dict[str, Any] = {
        str(status): {"description": _PROBLEMS[status], "content": problem} for status in sorted(possible)
    }
    if endpoint.result is None:
        responses["204"] = {"description": "Done."}
    else:
        content = {endpoint.content_type: {"schema": schema_of[id(endpoint.result)]}}
        responses[str(endpoint.status)] = {"description": "The result.", "content": content}
    return responses


@cache
def _encoded() -> bytes:
    return msgspec.json.encode(document(ENDPOINTS))


async def _serve(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    return Response(body=_encoded())


OPENAPI_ROUTE = Route(method="GET", path="/v1/openapi.json", handler=_serve, is_public=True)
