"""Stored topologies of streams groups. Members are not stored, see `registry`.

Storage has one entry per group in `Space.STREAMS_GROUPS`:

    key    group in UTF-8
    value  JSON object in UTF-8: the fields of `Topology`, with lists for tuples and sets

With the entry a group without members stays a streams group over a restart.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from posthouse.broker.groups.streams_topology import InternalTopic, Subtopology, Topology
from posthouse.model.errors import DataDamaged
from posthouse.model.ids import GroupId
from posthouse.storage.operations import Put
from posthouse.storage.spaces import Space


def put_topology(group: GroupId, topology: Topology) -> Put:
    value = json.dumps(asdict(topology), default=sorted).encode()
    return Put(Space.STREAMS_GROUPS, group.encode(), value)


def drop_topology(group: GroupId) -> Put:
    return Put(Space.STREAMS_GROUPS, group.encode(), None)


def stored_topologies(state: Mapping[bytes, bytes]) -> Iterator[tuple[GroupId, Topology]]:
    for key, value in state.items():
        yield GroupId(key.decode()), decoded_topology(value)


def decoded_topology(value: bytes) -> Topology:
    try:
        fields = json.loads(value)
        subtopologies = tuple(_subtopology(each) for each in fields["subtopologies"])
        return Topology(epoch=fields["epoch"], subtopologies=subtopologies)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DataDamaged(f"the topology of a streams group cannot be read: {error}") from None


def _subtopology(fields: dict[str, Any]) -> Subtopology:
    return Subtopology(
        id=fields["id"],
        sources=_names(fields["sources"]),
        repartition_sources=tuple(InternalTopic(**each) for each in fields["repartition_sources"]),
        repartition_sinks=_names(fields["repartition_sinks"]),
        changelogs=tuple(InternalTopic(**each) for each in fields["changelogs"]),
        copartitioned=tuple(frozenset(_names(each)) for each in fields["copartitioned"]),
    )


def _names(given: list[Any]) -> tuple[str, ...]:
    if not all(isinstance(name, str) for name in given):
        raise TypeError("a name is no text")
    return tuple(given)
