"""Every API, version and side, with strategies and conversions that follow kio's schemas.

A *plain* value is a dict of wire values by our field names. The same plain value becomes a kio entity,
one of our messages, or a kafka-python message, so that each can be held against the others.
"""

import dataclasses
import datetime
import io
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import TZAware, i32Timedelta, i64Timedelta

from posthouse.protocols.kafka.codec.primitives import ZERO_UUID, Message
from posthouse.protocols.kafka.codec.registry import APIS as REGISTRY
from posthouse.protocols.kafka.codec.registry import Api
from tests.examples import examples
from tools.kafka_codec.apis import APIS, ApiRange
from tools.kafka_codec.schema import Side, kio_type, our_name, read_field, unwrap

Plain = dict[str, Any]


def few(most: int) -> settings:
    """Few enough for two hundred layouts."""
    return settings(
        max_examples=examples(most),
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


@dataclass(frozen=True)
class Case:
    range: ApiRange
    version: int
    side: Side

    @property
    def entity(self) -> type[Any]:
        return kio_type(self.range, self.version, self.side)

    @property
    def api(self) -> Api:
        return REGISTRY[self.range.key]

    @property
    def module(self) -> ModuleType:
        return import_module(f"posthouse.protocols.kafka.codec.generated.{self.range.package}")

    @property
    def plain_values(self) -> st.SearchStrategy[Plain]:
        return plain_values(self.entity)

    @property
    def is_edge(self) -> bool:
        return self.version in (self.range.min_version, self.range.max_version)

    def few(self, most: int) -> settings:
        """A third for the versions between, which are read by the same functions as their neighbours."""
        return few(most if self.is_edge else most // 3)

    def __str__(self) -> str:
        return f"{self.range.package}-v{self.version}-{self.side}"

    def to_ours(self, plain: Plain) -> Message:
        message = to_ours(self.entity, self.module, plain)
        assert isinstance(message, Message)
        return message

    def to_kio(self, plain: Plain) -> Any:
        return to_kio(self.entity, plain)


REQUESTS = [Case(api, version, "request") for api in APIS for version in api.versions]
RESPONSES = [Case(api, version, "response") for api in APIS for version in api.versions]
NEWEST = [case for case in REQUESTS + RESPONSES if case.version == case.range.max_version]


def kio_bytes(value: Any) -> bytes:
    stream = io.BytesIO()
    entity_writer(type(value))(stream, value)
    return stream.getvalue()


def kio_value(entity: type[Any], encoded: bytes) -> Any:
    value, size = entity_reader(entity)(encoded, 0)
    assert size == len(encoded)
    return value


def _integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


_TEXT = st.text(max_size=12) | st.sampled_from(["", "a" * 126, "a" * 127, "é" * 200])
_LATEST_SECOND = int(datetime.datetime(9999, 1, 1, tzinfo=datetime.UTC).timestamp())

_KINDS: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": _integers(8),
    "int16": _integers(16),
    "int32": _integers(32),
    "int64": _integers(64),
    "uint16": st.integers(0, 0xFFFF),
    "uint32": st.integers(0, 0xFFFF_FFFF),
    "float64": st.floats(allow_nan=False),
    "string": _TEXT,
    "bytes": st.binary(max_size=40),
    "records": st.binary(max_size=40) | st.sampled_from([b"", b"r" * 511, b"r" * 20_000]),
    "uuid": st.binary(min_size=16, max_size=16) | st.just(ZERO_UUID),
    "error_code": st.sampled_from([code.value for code in ErrorCode]),
    "timedelta_i32": _integers(32),
    "timedelta_i64": st.integers(0, 1 << 40),
    # kio has whole seconds only.
    "datetime_i64": st.integers(0, _LATEST_SECOND).map(lambda second: second * 1000),
}


def plain_values(entity: type[Any]) -> st.SearchStrategy[Plain]:
    fields = {}
    for field in dataclasses.fields(entity):
        ours = read_field(field)
        fields[ours.name] = _field_values(field)
    return st.fixed_dictionaries(fields)


def _field_values(field: "dataclasses.Field[Any]") -> st.SearchStrategy[Any]:
    ours = read_field(field)
    element = element_type(field)
    values = plain_values(element) if ours.struct else _KINDS[field.metadata["kafka_type"]]
    if ours.array:
        arrays = st.lists(values, max_size=2 if ours.struct else 4)
        # 130 elements need a count of two bytes.
        values = arrays if ours.struct else arrays | values.map(lambda value: [value] * 130)
    elif field.metadata.get("kafka_type") == "datetime_i64" and field.default is None:
        # kio shows -1 as None.
        values = st.just(-1) | values
    return st.none() | values if ours.nullable else values


def element_type(field: "dataclasses.Field[Any]") -> Any:
    return unwrap(field.type)[0]


def to_kio(entity: type[Any], plain: Plain) -> Any:
    values = {}
    for field in dataclasses.fields(entity):
        ours = read_field(field)
        one = _kio_converter(field)
        value = plain[ours.name]
        if ours.array:
            values[field.name] = None if value is None else tuple(one(item) for item in value)
        else:
            values[field.name] = one(value)
    return entity(**values)


def _kio_converter(field: "dataclasses.Field[Any]") -> Callable[[Any], Any]:
    element = element_type(field)
    if dataclasses.is_dataclass(element):
        return lambda value: None if value is None else to_kio(element, value)  # type: ignore[arg-type]
    match field.metadata["kafka_type"]:
        case "error_code":
            return ErrorCode
        case "uuid":
            return lambda value: None if value == ZERO_UUID else uuid.UUID(bytes=value)
        case "timedelta_i32":
            return lambda value: i32Timedelta.parse(datetime.timedelta(milliseconds=value))
        case "timedelta_i64":
            return lambda value: i64Timedelta.parse(datetime.timedelta(milliseconds=value))
        case "datetime_i64":
            return _kio_time
    return lambda value: value


def _kio_time(milliseconds: int) -> TZAware | None:
    if milliseconds == -1:
        return None
    return TZAware.parse(datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC))


def to_ours(entity: type[Any], module: ModuleType, plain: Plain) -> Any:
    values = {}
    for field in dataclasses.fields(entity):
        ours = read_field(field)
        value = plain[ours.name]
        element = element_type(field)
        if ours.struct and value is not None:
            if ours.array:
                value = [to_ours(element, module, item) for item in value]
            else:
                # A tagged struct that says nothing is left out of the message, and None with us.
                silent = ours.tag is not None and to_kio(element, value) == field.default
                value = None if silent else to_ours(element, module, value)
        values[our_name(field.name, field.metadata.get("kafka_type", ""))] = value
    return _our_type(entity, module)(**values)


def _our_type(entity: type[Any], module: ModuleType) -> Any:
    """A nested type that differs between request and response has the side in its name."""
    side = entity.__module__.rpartition(".")[2].title()
    return getattr(module, f"{side}{entity.__name__}", None) or getattr(module, entity.__name__)
