"""Lists as RabbitMQ gives them: with columns, sorted, in pages by number, or whole.

A whole list is streamed a slice at a time; however long it is, it takes little memory and blocks nothing.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeVar

import msgspec

from posthouse.protocols.admin.management.errors import ManagementRefusal, bad_request
from posthouse.protocols.admin.management.name_pattern import NamePattern
from posthouse.protocols.admin.request import HttpRequest
from posthouse.protocols.admin.response import Response, json_response
from posthouse.protocols.admin.turns import in_turns

T = TypeVar("T")
View = Callable[[T], dict[str, Any]]
Columns = Mapping[str, Callable[[T], Any]]
"""Columns that can be had without the whole view, which takes longer by far: of ten thousand queues a page
sorted by one of them has to look at all."""

_PAGE_SIZE = 100
_MOST_PAGE_SIZE = 500
_CHUNK = 64 * 1024

_encode = msgspec.json.Encoder().encode


async def listed(
    request: HttpRequest,
    objects: Sequence[T],
    view: View[T],
    name: Callable[[T], str],
    quick: Columns[T] | None = None,
) -> Response:
    """`objects` in the order that RabbitMQ has without a sort; `name` is what the filter looks at."""
    quick = quick or {}
    query = request.query
    is_paged = "page" in query or query.get("pagination") == "true"
    chosen = await _filtered(query, objects, name) if is_paged else objects
    columns = _columns(query)
    if "sort" in query:
        by = quick.get(query["sort"]) or _value_at(view, query["sort"])
        # Views are made again when they are sent: thousands of them would keep the garbage collector busy.
        keyed = [(_comparable(by(each)), each) async for each in in_turns(chosen)]
        keyed.sort(key=itemgetter(0), reverse=query.get("sort_reverse") == "true")
        chosen = [each for _, each in keyed]
    shown = _pruned_view(view, columns, quick)
    return await _answer(query, chosen, shown, len(objects), is_paged)


def _pruned_view(view: View[T], columns: Sequence[Sequence[str]], quick: Columns[T]) -> View[T]:
    if columns and all(".".join(each) in quick for each in columns):
        return lambda each: {name: quick[name](each) for name, *_ in columns}
    return lambda each: pruned(view(each), columns)


def item(request: HttpRequest, view: dict[str, Any]) -> Response:
    return json_response(pruned(view, _columns(request.query)))


async def _answer(
    query: Mapping[str, str], rows: Sequence[T], view: View[T], total: int, is_paged: bool
) -> Response:
    if not is_paged:
        return Response(body=_streamed(rows, view))
    page, size = _positive(query, "page", 1), min(_positive(query, "page_size", _PAGE_SIZE), _MOST_PAGE_SIZE)
    pages = max(-(-len(rows) // size), 1)
    if page > pages:
        raise ManagementRefusal(
            400, "page_out_of_range", f"Page out of range, page: {page} page size: {size}, len: {len(rows)}"
        )
    shown = rows[(page - 1) * size : page * size]
    return json_response(
        {
            "total_count": total,
            "item_count": len(shown),
            "filtered_count": len(rows),
            "page": page,
            "page_size": size,
            "page_count": pages,
            # Encoded one by one, in turns: all at once they would block the event loop for long.
            "items": [msgspec.Raw(_encode(view(each))) async for each in in_turns(shown)],
        }
    )


async def _streamed(rows: Sequence[T], view: View[T]) -> AsyncIterator[bytes]:
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
