"""One type for all versions of a message: the union of their fields."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tools.kafka_codec.schema import Field, Struct


@dataclass(frozen=True, slots=True)
class Member:
    """A field of the merged type. `optional`: some version may carry null or leave the struct out."""

    name: str
    kind: str
    array: bool
    optional: bool
    default: object
    struct: str | None


@dataclass(frozen=True, slots=True)
class Type:
    name: str
    members: tuple[Member, ...]

    def member(self, name: str) -> Member:
        return next(member for member in self.members if member.name == name)


class MergeError(Exception):
    """Two versions give one name two meanings."""


def merge(versions: Iterable[Struct]) -> dict[str, Type]:
    """All types of a message by name, nested ones first; `versions` in ascending order."""
    seen: dict[str, list[Struct]] = {}
    for version in reversed(list(versions)):
        _collect(version, seen)
    return {name: _merge_structs(name, structs) for name, structs in seen.items()}


def rename(struct: Struct, names: dict[str, str]) -> Struct:
    """The same layout with other names for some of its parts."""
    fields = tuple(
        replace(field, struct=rename(field.struct, names)) if field.struct else field
        for field in struct.fields
    )
    return Struct(names.get(struct.name, struct.name), struct.flexible, fields)


def clashes(these: dict[str, Type], those: dict[str, Type]) -> set[str]:
    """Names that mean one thing here and another there, or that contain such a name."""
    shared = these.keys() & those.keys()
    found = {name for name in shared if these[name] != those[name]}
    while True:
        more = {name for name in shared - found if any(m.struct in found for m in these[name].members)}
        if not more:
            return found
        found |= more


def _collect(struct: Struct, seen: dict[str, list[Struct]]) -> None:
    for field in struct.fields:
        if field.struct is not None:
            _collect(field.struct, seen)
    seen.setdefault(struct.name, []).append(struct)


def _merge_structs(name: str, structs: list[Struct]) -> Type:
    """`structs` newest first: it gives the order; a field that it dropped follows its old neighbour."""
    members: list[Member] = []
    for struct in structs:
        place = 0
        for field in struct.fields:
            member = _member(field)
            known = next((i for i, other in enumerate(members) if other.name == field.name), None)
            if known is None:
                members.insert(place, member)
                place += 1
            else:
                members[known] = _join(name, members[known], member)
                place = known + 1
    return Type(name, tuple(members))


def _member(field: Field) -> Member:
    left_out = field.tag is not None and field.struct is not None and not field.array
    return Member(
        name=field.name,
        kind=field.kind,
        array=field.array,
        optional=field.nullable or left_out,
        default=field.default,
        struct=field.struct.name if field.struct else None,
    )


def _join(type_name: str, newer: Member, older: Member) -> Member:
    optional = newer.optional or older.optional
    joined = replace(newer, optional=optional)
    # A field that was not nullable in an old version has "" there and null in the newer.
    if joined != replace(older, optional=optional, default=newer.default):
        raise MergeError(f"{type_name}.{newer.name} changes its type between versions")
    return joined
