"""Every number, type and name that is declared, against the descriptors of RocketMQ's Python client."""

from enum import IntEnum
from typing import Any, Final

import pytest
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from rocketmq.grpc_protocol import service_pb2

from posthouse.protocols.rocketmq.grpc.messages import codes, enums
from posthouse.protocols.rocketmq.grpc.messages.fields import Field, Kind, Presence
from posthouse.protocols.rocketmq.grpc.messages.proto_message import ProtoMessage
from posthouse.protocols.rocketmq.grpc.messages.service import RPCS, SERVICE
from tests.protocols.rocketmq.grpc.messages.grpc_message_cases import FILES, KINDS, MESSAGES, their_class

ENUMS: Final = {
    name: value
    for module in (codes, enums)
    for name, value in vars(module).items()
    if isinstance(value, type) and issubclass(value, IntEnum) and value is not IntEnum
}

# In the definitions of the protocol since May 2026, and not in the client's generated classes (5.1.2).
NEWER_FIELDS: Final = {"Settings": {"client_properties": (9, Kind.STRING_MAP, Presence.IMPLICIT, "", "")}}
NEWER_VALUES: Final = {"Code": {"INVALID_CLIENT_PROPERTIES": 40021}}


def their_enums() -> dict[str, EnumDescriptor]:
    found = {name: each for file in FILES for name, each in file.enum_types_by_name.items()}
    for file in FILES:
        for name, message in file.message_types_by_name.items():
            found |= {name + inner: each for inner, each in message.enum_types_by_name.items()}
    return found


def declared(field: Field) -> tuple[Any, ...]:
    type_name = "" if field.type is None else field.type.__name__
    return field.number, field.kind, field.presence, type_name, field.oneof or ""


def described(field: FieldDescriptor) -> tuple[Any, ...]:
    kind = KINDS[field.type]
    type_name, oneof = "", ""
    if field.message_type is not None:
        type_name = field.message_type.name
        if field.message_type.GetOptions().map_entry:
            parts = [(each.number, each.type) for each in field.message_type.fields]
            assert parts == [(1, FieldDescriptor.TYPE_STRING), (2, FieldDescriptor.TYPE_STRING)]
            return field.number, Kind.STRING_MAP, Presence.IMPLICIT, "", ""
    elif field.enum_type is not None:
        outer = field.enum_type.containing_type
        type_name = ("" if outer is None else outer.name) + field.enum_type.name
    if field.is_repeated:
        presence = Presence.REPEATED
    else:
        presence = Presence.OPTIONAL if field.has_presence else Presence.IMPLICIT
    if field.containing_oneof is not None and not field.containing_oneof.name.startswith("_"):
        oneof = field.containing_oneof.name
    return field.number, kind, presence, type_name, oneof


@pytest.mark.parametrize("name", MESSAGES)
def test_fields_are_those_of_the_protocol(name: str) -> None:
    ours = {key: declared(field) for key, field in MESSAGES[name].fields.items()}
    described_fields = their_class(MESSAGES[name]).DESCRIPTOR.fields
    newer = NEWER_FIELDS.get(name, {})
    assert ours == {field.name: described(field) for field in described_fields} | newer


def test_all_messages_of_the_protocol_are_declared() -> None:
    names = {name for file in FILES for name in file.message_types_by_name}
    assert set(MESSAGES) == names | {"Timestamp", "Duration"}


@pytest.mark.parametrize("name", ENUMS)
def test_values_of_enums(name: str) -> None:
    ours = {member.name: member.value for member in ENUMS[name]}
    newer = NEWER_VALUES.get(name, {})
    assert ours == {value.name: value.number for value in their_enums()[name].values} | newer


def test_all_enums_of_the_protocol_are_declared() -> None:
    assert set(ENUMS) == set(their_enums())


def test_the_calls() -> None:
    (service,) = service_pb2.DESCRIPTOR.services_by_name.values()
    assert service.full_name == SERVICE
    assert [
        (rpc.name, rpc.request.__name__, rpc.response.__name__, rpc.streams_requests, rpc.streams_responses)
        for rpc in sorted(RPCS, key=lambda rpc: rpc.name)
    ] == [
        (
            method.name,
            method.input_type.name,
            method.output_type.name,
            method.client_streaming,
            method.server_streaming,
        )
        for method in sorted(service.methods, key=lambda method: method.name)
    ]
    assert RPCS[0].path == "/apache.rocketmq.v2.MessagingService/QueryRoute"


def nesting(kind: type[ProtoMessage], above: tuple[str, ...] = ()) -> int:
    """How deep messages are in each other at most."""
    assert kind.__name__ not in above, "a message that contains its own kind needs a limit of depth"
    inner = [field.type for field in kind.fields.values() if field.kind is Kind.MESSAGE]
    return 1 + max((nesting(each, (*above, kind.__name__)) for each in inner), default=0)


def test_the_depth_of_messages_is_bounded_by_their_declarations() -> None:
    assert max(map(nesting, MESSAGES.values())) == 6


def doublings(kind: type[ProtoMessage]) -> int:
    """How often a part of a message is read twice, at most, where sub-messages come in pieces."""
    fields = [field for field in kind.fields.values() if field.kind is Kind.MESSAGE]
    has_both = len({field.presence for field in fields}) == 2
    return has_both + max((doublings(field.type) for field in fields), default=0)


def test_sub_messages_in_pieces_double_the_work_at_most() -> None:
    assert max(map(doublings, MESSAGES.values())) == 1


def test_the_descriptors_are_those_of_messages() -> None:
    """The oracle itself: 17 calls, and descriptors that say something."""
    assert len(RPCS) == 17
    assert all(isinstance(their_class(each).DESCRIPTOR, Descriptor) for each in MESSAGES.values())
