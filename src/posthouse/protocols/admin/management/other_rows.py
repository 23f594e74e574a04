"""Rows of lists that other brokers of the cluster have: those of the virtual hosts that they serve.

Another broker filters and sorts its rows, and is asked for no more of them than the wanted page can have.
Rows are not decoded unless they must be sorted or pruned here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from posthouse.model.scopes import NAMESPACES
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.other_brokers import OtherBroker, Parts
from posthouse.protocols.admin.request import HttpRequest
from posthouse.protocols.admin.router import Parameters

MOST_PAGE_SIZE: Final = 500
_FILTERS: Final = ("name", "use_regex", "sort", "sort_reverse")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRows:
    rows: Sequence[msgspec.Raw] = ()
    """As JSON. Those of one broker are in the wanted order."""
    total: int = 0
    matching: int = 0
    """Of the total. There may be more than `rows`."""


class _PagedRows(msgspec.Struct):
    total_count: int
    filtered_count: int
    page_count: int
    items: list[msgspec.Raw]


NO_ROWS: Final = FoundRows()


class OtherRows:
    def __init__(self, context: CallContext, request: HttpRequest, parameters: Parameters) -> None:
        """To be made before this broker's own rows are looked for: see `Parts`. A list of one virtual host is
        at one broker: others have no rows of it. Raises Problem."""
        self._request = request
        self._parts = Parts() if "vhost" in parameters else context.parts(NAMESPACES, "namespaces")

    async def read(self, most: int | None) -> FoundRows:
        """All rows, or those that match the filter: the first `most` of each broker. Raises Problem and
        Unavailable if a broker is missing."""
        rows: list[msgspec.Raw] = []
        total = matching = 0
        for other in self._parts.others:
            found = await (self._whole(other) if most is None else self._first(other, most))
            rows += found.rows
            total += found.total
            matching += found.matching
        self._parts.check()
        return FoundRows(rows=rows, total=total, matching=matching)

    async def _whole(self, other: OtherBroker) -> FoundRows:
        rows = msgspec.json.decode(await self._read(other, {}), type=list[msgspec.Raw])
        return FoundRows(rows=rows, total=len(rows), matching=len(rows))

    async def _first(self, other: OtherBroker, most: int) -> FoundRows:
        filters = {name: self._request.query[name] for name in _FILTERS if name in self._request.query}
        rows: list[msgspec.Raw] = []
        page = 0
        while True:
            page += 1
            query = {**filters, "page": str(page), "page_size": str(min(most, MOST_PAGE_SIZE))}
            found = msgspec.json.decode(await self._read(other, query), type=_PagedRows)
            rows += found.items
            if len(rows) >= most or page >= found.page_count:
                return FoundRows(rows=rows, total=found.total_count, matching=found.filtered_count)

    async def _read(self, other: OtherBroker, query: Mapping[str, str]) -> bytes:
        wanted = dict(query)
        if columns := self._request.query.get("columns"):
            sort = self._request.query.get("sort")
            wanted["columns"] = columns if sort is None else f"{columns},{sort}"
        return await other.read(self._request.segments, wanted)
