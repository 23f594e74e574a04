"""Messages by key or message id, for `consume --key`.

The JSON API says where they are; then they are read as all others, with all their bytes.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from posthouse.client import Client
    from posthouse.client.admin_client import AdminClient
    from posthouse.client.reading import Message

_PAGE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    key: str | None
    message_id: str | None
    since_ms: int | None
    until_ms: int | None
    partitions: tuple[int, ...]


def found_records(
    client: Client, admin: AdminClient, topic: str, wanted: Wanted
) -> Iterator[tuple[str, Message]]:
    """In the order of partitions and offsets."""
    info = client.topic(topic)
    for partition, rows in groupby(_positions(admin, topic, wanted), key=lambda row: row[0]):
        for offsets in _pages(offset for _, offset in rows):
            for message in client.records_at(info, partition, offsets):
                yield topic, message


def _pages(offsets: Iterable[int]) -> Iterator[list[int]]:
    page: list[int] = []
    for offset in offsets:
        page.append(offset)
        if len(page) == _PAGE:
            yield page
            page = []
    if page:
        yield page


def _positions(admin: AdminClient, topic: str, wanted: Wanted) -> Iterator[tuple[int, int]]:
    from posthouse.client.admin_client import part

    query: dict[str, Any] = {
        "message_id": wanted.message_id,
        "timestamp": wanted.since_ms,
        "until": wanted.until_ms,
        "limit": _PAGE,
        "value_bytes": 0,
        "max_bytes": 4 * 1024 * 1024,
    }
    if wanted.key is not None:
        # A terminal may give bytes that are no text.
        query |= {"key": base64.b64encode(os.fsencode(wanted.key)).decode(), "key_encoding": "base64"}
    for partition in wanted.partitions or (None,):
        after = None
        while True:
            found = admin.get(f"/v1/topics/{part(topic)}/records", **query, partition=partition, after=after)
            yield from ((each["partition"], each["offset"]) for each in found["records"])
            after = found["next"]
            if after is None:
                break
