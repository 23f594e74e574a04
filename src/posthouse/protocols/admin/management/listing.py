"""Lists as RabbitMQ gives them: with columns, sorted, in pages by number, or whole.

A whole list is streamed a slice at a time; however long it is, it takes little memory and blocks nothing.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeVar

import msgspec

from posthouse.protocols.admin.management.errors import ManagementRefusal, bad_request
from posthouse.protocols.admin.management.name_pattern import NamePattern
from posthouse.protocols.admin.management.other_rows import MOST_PAGE_SIZE, NO_ROWS, OtherRows
from posthouse.protocols.admin.request import HttpRequest
from posthouse.protocols.admin.response import Response, json_response
from posthouse.protocols.admin.turns import in_turns

T = TypeVar("T")
View = Callable[[T], dict[str, Any]]
Columns = Mapping[str, Callable[[T], Any]]
"""Columns that can be had without the whole view, which takes longer by far: of ten thousand queues a page
sorted by one of them has to look at all."""

_PAGE_SIZE = 100
_CHUNK = 64 * 1024

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


async def listed(
    request: HttpRequest,
    objects: Sequence[T],
    view: View[T],
    name: Callable[[T], str],
    quick: Columns[T] | None = None,
    others: OtherRows | None = None,
) -> Response:
    """`objects` in the order that RabbitMQ has without a sort; `name` is what the filter looks at. The rows
    of other brokers come behind those of this one, or are sorted with them."""
    quick = quick or {}
    query = request.query
    page = _page(query)
    chosen = objects if page is None else await _filtered(query, objects, name)
    found = NO_ROWS if others is None else await others.read(None if page is None else page.end)
    rows: Sequence[T | msgspec.Raw] = [*chosen, *found.rows] if found.rows else chosen
    columns = _columns(query)
    if "sort" in query:
        by = _or_of_row(quick.get(query["sort"]) or _value_at(view, query["sort"]), query["sort"])
        # Views are made again when they are sent: thousands of them would keep the garbage collector busy.
        keyed = [(_comparable(by(each)), each) async for each in in_turns(rows)]
        keyed.sort(key=itemgetter(0), reverse=query.get("sort_reverse") == "true")
        rows = [each for _, each in keyed]
    shown = _or_row(_pruned_view(view, columns, quick), columns)
    if page is None:
        return Response(body=_streamed(rows, shown))
    return await _paged(
        page, rows, shown, total=len(objects) + found.total, matching=len(chosen) + found.matching
    )


def _or_of_row(of_object: Callable[[T], Any], column: str) -> Callable[[T | msgspec.Raw], Any]:
    """Also the column of a row of another broker."""
    of_row = _value_at(_decode, column)
    return lambda each: of_row(each) if isinstance(each, msgspec.Raw) else of_object(each)


def _or_row(
    view: View[T], columns: Sequence[Sequence[str]]
) -> Callable[[T | msgspec.Raw], dict[str, Any] | msgspec.Raw]:
    """Also shows the row of another broker, which is sent as it is if it need not be pruned."""

    def shown(each: T | msgspec.Raw) -> dict[str, Any] | msgspec.Raw:
        if isinstance(each, msgspec.Raw):
            return pruned(_decode(each), columns) if columns else each
        return view(each)

    return shown


def _pruned_view(view: View[T], columns: Sequence[Sequence[str]], quick: Columns[T]) -> View[T]:
    if columns and all(".".join(each) in quick for each in columns):
        return lambda each: {name: quick[name](each) for name, *_ in columns}
    return lambda each: pruned(view(each), columns)


def item(request: HttpRequest, view: dict[str, Any]) -> Response:
    return json_response(pruned(view, _columns(request.query)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    number: int
    size: int

    @property
    def end(self) -> int:
        """Rows up to its end."""
        return self.number * self.size


def _page(query: Mapping[str, str]) -> _Page | None:
    """None if the whole list is wanted."""
    if "page" not in query and query.get("pagination") != "true":
        return None
    size = min(_positive(query, "page_size", _PAGE_SIZE), MOST_PAGE_SIZE)
    return _Page(number=_positive(query, "page", 1), size=size)


async def _paged(
    page: _Page, rows: Sequence[T], view: Callable[[T], Any], *, total: int, matching: int
) -> Response:
    """`rows` has at least those up to the end of the page."""
    pages = max(-(-matching // page.size), 1)
    if page.number > pages:
        raise ManagementRefusal(
            400,
            "page_out_of_range",
            f"Page out of range, page: {page.number} page size: {page.size}, len: {matching}",
        )
    shown = rows[page.end - page.size : page.end]
    return json_response(
        {
            "total_count": total,
            "item_count": len(shown),
            "filtered_count": matching,
            "page": page.number,
            "page_size": page.size,
            "page_count": pages,
            # Encoded one by one, in turns: all at once they would block the event loop for long.
            "items": [msgspec.Raw(_encode(view(each))) async for each in in_turns(shown)],
        }
    )


async def _streamed(rows: Sequence[T], view: Callable[[T], Any]) -> AsyncIterator[bytes]:
    chunk = bytearray(b"[")
    is_first = True
    async for row in in_turns(rows):
        if not is_first:
            chunk += b","
        is_first = False
        chunk += _encode(view(row))
        if len(chunk) > _CHUNK:
            yield bytes(chunk)
            chunk.clear()
    yield bytes(chunk + b"]")


async def _filtered(query: Mapping[str, str], objects: Sequence[T], name: Callable[[T], str]) -> Sequence[T]:
    wanted = query.get("name", "")
    if not wanted:
        return objects
    if query.get("use_regex") == "true":
        pattern = NamePattern(wanted)
        return [each async for each in in_turns(objects) if pattern.is_in(name(each))]
    lower = wanted.lower()
    return [each async for each in in_turns(objects) if lower in name(each).lower()]


def _positive(query: Mapping[str, str], name: str, default: int) -> int:
    value = query.get(name, "") or str(default)
    if not (value.isascii() and value.isdigit()) or len(value) > 9 or int(value) < 1:
        raise bad_request("Pagination parameters are invalid")
    return int(value)


def _columns(query: Mapping[str, str]) -> Sequence[Sequence[str]]:
    return [column.split(".") for column in query.get("columns", "").split(",") if column]


def pruned(row: dict[str, Any], columns: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Only the columns; message_stats.publish is one inside of another."""
    if not columns:
        return row
    found: dict[str, Any] = {}
    for column in columns:
        source, target = row, found
        for part in column[:-1]:
            inner = source.get(part)
            if not isinstance(inner, dict):
                break
            source, target = inner, target.setdefault(part, {})
        else:
            if column[-1] in source:
                target[column[-1]] = source[column[-1]]
    return found


def _value_at(view: View[T], column: str) -> Callable[[T], Any]:
    path = column.split(".")

    def value(each: T) -> Any:
        found: Any = view(each)
        for part in path:
            found = found.get(part) if isinstance(found, dict) else None
        return found

    return value


def _comparable(value: Any) -> tuple[int, Any]:
    """Numbers before texts, and those before what is missing."""
    if isinstance(value, bool | int | float):
        return 0, value
    return (1, value) if isinstance(value, str) else (2, "")
