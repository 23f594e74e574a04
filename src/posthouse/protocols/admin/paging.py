"""Lists in pages: no answer is unbounded. A page begins after the name that the page before ended with."""

import heapq
from collections.abc import Callable, Iterable
from typing import Annotated, Generic, TypeVar

import msgspec
from msgspec import Meta

from posthouse.protocols.admin.turns import in_turns

T = TypeVar("T")
R = TypeVar("R")

MOST = 1000


class Paging(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parameters of a list; those with filters of their own inherit from it."""

    limit: Annotated[int, Meta(ge=1, le=MOST, description="Most items of the page.")] = 100
    after: Annotated[str, Meta(description="`next` of the page before; empty for the first page.")] = ""
    search: Annotated[str, Meta(max_length=250, description="Only names that contain this.")] = ""


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    items: list[T]
    total: Annotated[int, Meta(description="Items on all pages.")]
    next: Annotated[str | None, Meta(description="`after` of the next page; null on the last one.")] = None


def page(names: Iterable[str], paging: Paging, item: Callable[[str], R]) -> Page[R]:
    """`item` is called for the names of the page only. Names are unique."""
    matching = [name for name in names if paging.search in name] if paging.search else list(names)
    later = [name for name in matching if name > paging.after] if paging.after else matching
    shown = heapq.nsmallest(paging.limit, later)
    return Page(
        items=[item(name) for name in shown],
        total=len(matching),
        next=shown[-1] if len(shown) < len(later) else None,
    )


async def page_of_names(names: Iterable[str], paging: Paging, *, sees: Callable[[str], bool]) -> Page[str]:
    """The names of a page. `sees` is asked of every name; other work of the event loop runs in between."""
    visible = [name async for name in in_turns(list(names)) if paging.search in name and sees(name)]
    later = [name for name in visible if name > paging.after] if paging.after else visible
    shown = heapq.nsmallest(paging.limit, later)
    return Page(items=shown, total=len(visible), next=shown[-1] if len(shown) < len(later) else None)


async def page_in_turns(
    names: Iterable[str], paging: Paging, item: Callable[[str], R | None], *, sees: Callable[[str], bool]
) -> Page[R]:
    """`page` for long lists. A name whose `item` is None was deleted meanwhile and is left out."""
    found = await page_of_names(names, paging, sees=sees)
    items = [each async for name in in_turns(found.items, steps=1) if (each := item(name)) is not None]
    return Page(items=items, total=found.total, next=found.next)
