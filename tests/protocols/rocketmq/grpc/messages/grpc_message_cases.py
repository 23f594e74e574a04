"""Any values of any message, out of our declarations, and the same as messages of the protobuf library.

The generated classes are those of RocketMQ's Python client.
"""

from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor, FileDescriptor
from google.protobuf.duration_pb2 import Duration as TheirDuration
from google.protobuf.message import Message as TheirMessage
from google.protobuf.timestamp_pb2 import Timestamp as TheirTimestamp
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from rocketmq.grpc_protocol import definition_pb2, service_pb2

from posthouse.protocols.rocketmq.grpc.messages import definition, service, telemetry, well_known
from posthouse.protocols.rocketmq.grpc.messages.fields import Field, Kind, Presence
from posthouse.protocols.rocketmq.grpc.messages.proto_message import ProtoMessage
from tests.examples import examples

FILES: Final[tuple[FileDescriptor, ...]] = (definition_pb2.DESCRIPTOR, service_pb2.DESCRIPTOR)
MESSAGES: Final = {
    name: value
    for module in (definition, telemetry, service, well_known)
    for name, value in vars(module).items()
    if isinstance(value, type) and issubclass(value, ProtoMessage) and value is not ProtoMessage
}
_WELL_KNOWN: Final = {"Timestamp": TheirTimestamp, "Duration": TheirDuration}
"""Of the generated classes, by our names for them."""


def few(most: int) -> settings:
    return settings(max_examples=examples(most), deadline=None, suppress_health_check=list(HealthCheck))


def their_class(kind: type[ProtoMessage]) -> Any:
    name = kind.__name__
    return _WELL_KNOWN.get(name) or getattr(definition_pb2, name, None) or getattr(service_pb2, name)


def fields_of(kind: type[ProtoMessage]) -> dict[str, Field]:
    """Those that the generated classes know."""
    known = their_class(kind).DESCRIPTOR.fields_by_name
    return {name: field for name, field in kind.fields.items() if name in known}


def theirs(message: ProtoMessage) -> Any:
    made = their_class(type(message))()
    for name, field in fields_of(type(message)).items():
        value = getattr(message, name)
        if field.kind is Kind.STRING_MAP:
            getattr(made, name).update(value)
        elif field.presence is Presence.REPEATED:
            each = [theirs(one) for one in value] if field.kind is Kind.MESSAGE else value
            getattr(made, name).extend(each)
        elif field.is_single_message:
            if value is not None:
                getattr(made, name).CopyFrom(theirs(value))
        elif value is not None:
            setattr(made, name, value)
    return made


def ours(message: TheirMessage, kind: type[ProtoMessage]) -> Any:
    return kind(**{name: _our_value(message, name, field) for name, field in fields_of(kind).items()})


def _our_value(message: TheirMessage, name: str, field: Field) -> Any:
    value = getattr(message, name)
    if field.kind is Kind.STRING_MAP:
        return dict(value)
    if field.presence is Presence.REPEATED:
        return tuple(_our_element(each, field) for each in value)
    if field.presence is Presence.OPTIONAL and not message.HasField(name):
        return None
    return _our_element(value, field)


def _our_element(value: Any, field: Field) -> Any:
    if field.kind is Kind.MESSAGE:
        return ours(value, field.type)
    return _member(field.type, value) if field.kind is Kind.ENUM else value


_int32 = st.sampled_from([0, 1, -1, 127, 128, (1 << 31) - 1, -(1 << 31)]) | st.integers(
    -(1 << 31), (1 << 31) - 1
)
_int64 = st.sampled_from([0, 1, -1, 1 << 35, (1 << 63) - 1, -(1 << 63)]) | st.integers(
    -(1 << 63), (1 << 63) - 1
)
_text = (
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
    | st.just("x" * 127)
    | st.just("é" * 64)
    | st.just("x" * 20_000)
)
_VALUES: Final[dict[Kind, st.SearchStrategy[Any]]] = {
    Kind.INT32: _int32,
    Kind.INT64: _int64,
    Kind.BOOLEAN: st.booleans(),
    Kind.FLOAT: st.floats(width=32, allow_nan=False),
    Kind.STRING: _text,
    Kind.BYTES: st.binary(max_size=200),
    Kind.STRING_MAP: st.dictionaries(_text, _text, max_size=4),
}


def messages(kind: type[ProtoMessage]) -> st.SearchStrategy[Any]:
    """Any value, with one member of each oneof at most."""

    @st.composite
    def drawn(draw: st.DrawFn) -> ProtoMessage:
        values: dict[str, Any] = {}
        oneofs: dict[str, list[str]] = {}
        fields = fields_of(kind)
        for name, field in fields.items():
            if field.oneof is not None:
                oneofs.setdefault(field.oneof, []).append(name)
            elif draw(st.booleans()):
                values[name] = draw(_any_value(field))
        for members in oneofs.values():
            chosen = draw(st.none() | st.sampled_from(members))
            if chosen is not None:
                values[chosen] = draw(_any_value(fields[chosen]))
        return kind(**values)

    return drawn()


def _any_value(field: Field) -> st.SearchStrategy[Any]:
    if field.kind is Kind.MESSAGE:
        value = messages(field.type)
    elif field.kind is Kind.ENUM:
        value = st.sampled_from(list(field.type)) | _int32.map(lambda number: _member(field.type, number))
    else:
        value = _VALUES[field.kind]
    return st.lists(value, max_size=3).map(tuple) if field.presence is Presence.REPEATED else value


def _member(enum: Any, number: int) -> int:
    return enum(number) if number in list(enum) else number


KINDS: Final = {
    FieldDescriptor.TYPE_INT32: Kind.INT32,
    FieldDescriptor.TYPE_INT64: Kind.INT64,
    FieldDescriptor.TYPE_BOOL: Kind.BOOLEAN,
    FieldDescriptor.TYPE_ENUM: Kind.ENUM,
    FieldDescriptor.TYPE_FLOAT: Kind.FLOAT,
    FieldDescriptor.TYPE_STRING: Kind.STRING,
    FieldDescriptor.TYPE_BYTES: Kind.BYTES,
    FieldDescriptor.TYPE_MESSAGE: Kind.MESSAGE,
}
