"""The stored format of exchanges and bindings: one entry each.

    key of an exchange    size of the namespace u32 | namespace | name of the exchange, to the end
    key of a binding      size of the namespace u32 | namespace | SHA-256 of the value
    values                JSON in ASCII, names sorted: {"version": 1, the fields}

Names are in UTF-8. A definition is always encoded to the same bytes, and two that differ, if only in the
type of an argument, never are: bindings are told apart by their values. For arguments see `table_values`.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields
from struct import Struct, error
from typing import TypeVar

from posthouse.broker.routing.definitions import Binding, ExchangeDefinition, ExchangeKind
from posthouse.broker.routing.table_values import from_json, to_json
from posthouse.model.errors import DataDamaged, InvalidDefinition

T = TypeVar("T")

_VERSION = 1
_SIZE = Struct(">I")
_EXCHANGE_FIELDS = frozenset(each.name for each in fields(ExchangeDefinition))
_BINDING_FIELDS = frozenset(each.name for each in fields(Binding))


def encode_exchange(definition: ExchangeDefinition) -> bytes:
    return _encoded({name: getattr(definition, name) for name in _EXCHANGE_FIELDS})


def decode_exchange(data: bytes) -> ExchangeDefinition:
    stored = _decoded(data, _EXCHANGE_FIELDS)
    try:
        kind = ExchangeKind(_checked(stored, "kind", str))
    except ValueError as damage:
        raise DataDamaged("a stored exchange of an unknown kind") from damage
    return ExchangeDefinition(
        name=_checked(stored, "name", str),
        kind=kind,
        durable=_checked(stored, "durable", bool),
        auto_delete=_checked(stored, "auto_delete", bool),
        internal=_checked(stored, "internal", bool),
        alternate=None if stored["alternate"] is None else _checked(stored, "alternate", str),
        delayed=_checked(stored, "delayed", bool),
        arguments=_checked(stored, "arguments", dict),
    )


def encode_binding(binding: Binding) -> bytes:
    """Raises InvalidDefinition if an argument has a type that a table cannot hold."""
    return _encoded({name: getattr(binding, name) for name in _BINDING_FIELDS})


def decode_binding(data: bytes) -> Binding:
    stored = _decoded(data, _BINDING_FIELDS)
    return Binding(
        source=_checked(stored, "source", str),
        destination=_checked(stored, "destination", str),
        to_exchange=_checked(stored, "to_exchange", bool),
        key=_checked(stored, "key", bytes),
        arguments=_checked(stored, "arguments", dict),
    )


def exchange_key(namespace: str, name: str) -> bytes:
    return _in_namespace(namespace, name.encode())


def binding_key(namespace: str, binding: Binding) -> bytes:
    return _in_namespace(namespace, hashlib.sha256(encode_binding(binding)).digest())


def namespace_of(key: bytes) -> str:
    """The namespace in the key of an exchange or of a binding."""
    return _parts(key)[0].decode()


def name_of(key: bytes) -> str:
    """The name in the key of an exchange or of a queue."""
    try:
        return _parts(key)[1].decode()
    except UnicodeDecodeError as damage:
        raise DataDamaged("a stored key whose name is not UTF-8") from damage


def _parts(key: bytes) -> tuple[bytes, bytes]:
    """The namespace in UTF-8, and what follows it."""
    try:
        [size] = _SIZE.unpack_from(key)
        if len(key) < _SIZE.size + size:
            raise DataDamaged("a stored key that ends too early")
        key[_SIZE.size : _SIZE.size + size].decode()
    except (error, UnicodeDecodeError) as damage:
        raise DataDamaged("a stored key without a namespace") from damage
    return key[_SIZE.size : _SIZE.size + size], key[_SIZE.size + size :]


def _in_namespace(namespace: str, rest: bytes) -> bytes:
    encoded = namespace.encode()
    return _SIZE.pack(len(encoded)) + encoded + rest


def _encoded(values: Mapping[str, object]) -> bytes:
    tagged = {name: to_json(value) for name, value in values.items()}
    try:
        return json.dumps(tagged | {"version": _VERSION}, sort_keys=True, separators=(",", ":")).encode()
    except ValueError as problem:
        raise InvalidDefinition("an argument is too large a number") from problem


def _decoded(data: bytes, names: frozenset[str]) -> dict[str, object]:
    try:
        stored = from_json(json.loads(data))
    except (ValueError, RecursionError) as damage:
        raise DataDamaged("a stored definition is not JSON") from damage
    if not isinstance(stored, dict):
        raise DataDamaged("a stored definition is no object")
    version = stored.pop("version", None)
    if version != _VERSION:
        raise DataDamaged(f"a definition of the unknown version {version!r}")
    if stored.keys() != names:
        raise DataDamaged(f"a stored definition with the fields {sorted(stored)}")
    return stored


def _checked(stored: Mapping[str, object], name: str, kind: type[T]) -> T:
    value = stored[name]
    if not isinstance(value, kind):
        raise DataDamaged(f"a stored definition whose {name} is {value!r}")
    return value
