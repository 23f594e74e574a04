"""How a request of the table is written: the API, its version, what it needs, and its fields."""

import dataclasses
import datetime
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kio.static.primitive import i32Timedelta, i64Timedelta

from posthouse.broker.access.operations import Kind, Operation
from posthouse.protocols.kafka.errors import ErrorCode
from tests.protocols.kafka.access.roles import Role
from tests.protocols.kafka.access.scene import Scene
from tests.protocols.kafka.wire import Wire
from tools.kafka_codec.apis import APIS, ApiRange
from tools.kafka_codec.schema import kio_type, read_field, unwrap

_BY_PACKAGE = {api.package: api for api in APIS}

_CODES = {
    Kind.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    Kind.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    Kind.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    Kind.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
REFUSALS = frozenset(map(int, _CODES.values()))


@dataclass(frozen=True)
class Need:
    """One of these is enough."""

    either: tuple[tuple[Operation, Kind], ...]
    code: ErrorCode
    or_writes_elsewhere: bool = False

    def is_met(self, role: Role) -> bool:
        if self.or_writes_elsewhere and role.writes_elsewhere:
            return True
        return any(role.may(operation, kind) for operation, kind in self.either)


def on_topic(operation: Operation) -> Need:
    return Need(((operation, Kind.TOPIC),), _CODES[Kind.TOPIC])


def on_group(operation: Operation) -> Need:
    return Need(((operation, Kind.GROUP),), _CODES[Kind.GROUP])


def on_cluster(*operations: Operation) -> Need:
    return Need(tuple((operation, Kind.CLUSTER) for operation in operations), _CODES[Kind.CLUSTER])


def on_transaction(operation: Operation) -> Need:
    return Need(((operation, Kind.TRANSACTIONAL_ID),), _CODES[Kind.TRANSACTIONAL_ID])


CREATION = Need(((Operation.CREATE, Kind.TOPIC), (Operation.CREATE, Kind.CLUSTER)), _CODES[Kind.TOPIC])
IDEMPOTENCE = Need(
    ((Operation.IDEMPOTENT_WRITE, Kind.CLUSTER), (Operation.WRITE, Kind.TOPIC)),
    _CODES[Kind.CLUSTER],
    or_writes_elsewhere=True,
)

Fields = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Case:
    package: str
    version: int
    needs: tuple[Need, ...] = ()
    """In the order in which they are asked for: the first that is not met is the answer."""
    fields: Callable[[Scene], Fields] = lambda scene: {}
    otherwise: frozenset[int] = frozenset()
    """What is wrong with the request for those who may."""
    with_topic: bool = True
    of: str = ""

    @property
    def api(self) -> ApiRange:
        return _BY_PACKAGE[self.package]

    @property
    def key(self) -> int:
        return self.api.key

    def __str__(self) -> str:
        return f"{self.package}-v{self.version}{self.of and f'-{self.of}'}"

    def expected(self, role: Role) -> frozenset[int]:
        for need in self.needs:
            if not need.is_met(role):
                return frozenset({int(need.code)})
        return self.otherwise

    def request(self, scene: Scene) -> Any:
        return built(kio_type(self.api, self.version, "request"), self.fields(scene))

    async def ask(self, wire: Wire, scene: Scene) -> Any:
        return await wire.ask_kio(self.request(scene), kio_type(self.api, self.version, "response"))


def case(
    package: str,
    needs: list[Need],
    fields: Callable[[Scene], Fields] | Fields | None = None,
    *otherwise: ErrorCode,
    version: int | None = None,
    with_topic: bool = True,
    of: str = "",
) -> Case:
    """Of the newest version, unless another one is named."""
    given = fields or {}
    return Case(
        package=package,
        version=_BY_PACKAGE[package].max_version if version is None else version,
        needs=tuple(needs),
        fields=given if callable(given) else lambda scene: given,
        otherwise=frozenset(map(int, otherwise)),
        with_topic=with_topic,
        of=of,
    )


def built(entity: type[Any], given: Fields) -> Any:
    """An entity of kio. Fields that are not given have their default, or nothing in them."""
    known = {read_field(field).name: field for field in dataclasses.fields(entity)}
    assert given.keys() <= known.keys(), given.keys() - known.keys()
    values = {}
    for name, field in known.items():
        if name in given:
            values[field.name] = _value(field, given[name])
        elif field.default is dataclasses.MISSING:
            values[field.name] = _nothing(field)
    return entity(**values)


def _value(field: "dataclasses.Field[Any]", given: Any) -> Any:
    if isinstance(given, list):
        return tuple(_value(field, each) for each in given)
    if isinstance(given, dict):
        return built(unwrap(field.type)[0], given)
    match field.metadata.get("kafka_type"):
        case "uuid":
            return uuid.UUID(bytes=given)
        case "timedelta_i32":
            return i32Timedelta.parse(datetime.timedelta(milliseconds=given))
        case "timedelta_i64":
            return i64Timedelta.parse(datetime.timedelta(milliseconds=given))
    return given


def _nothing(field: "dataclasses.Field[Any]") -> Any:
    if "tuple" in str(field.type):
        return ()
    match field.metadata.get("kafka_type"):
        case "string":
            return ""
        case "bytes":
            return b""
        case "bool":
            return False
        case "uuid":
            return None
        case "timedelta_i32" | "timedelta_i64":
            return _value(field, 0)
    return 0


def codes_in(answer: Any) -> frozenset[int]:
    """Every error code anywhere in an answer, but that of success."""
    if isinstance(answer, tuple | list):
        return frozenset().union(*map(codes_in, answer))
    if not dataclasses.is_dataclass(answer):
        return frozenset()
    found = frozenset[int]()
    for field in dataclasses.fields(answer):
        value = getattr(answer, field.name)
        if field.name.endswith("error_code"):
            found |= {int(value)} - {0}
        else:
            found |= codes_in(value)
    return found
