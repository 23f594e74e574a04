"""Lists of which every broker of a cluster has a part: what belongs to the scopes that it holds."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from posthouse.model.scopes import Scope
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.other_brokers import Parts
from posthouse.protocols.admin.paging import MOST, Page, Paging

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadList(Generic[T]):
    noun: str
    """What is listed, in the plural, for people."""
    scopes: Sequence[Scope]
    """All scopes that items belong to."""
    path: tuple[str, ...]
    """Of the call that lists them."""
    answer: Any
    """The type of its result."""
    page: Callable[[Any], Page[T]]
    """The page in that result."""
    name: Callable[[T], str]

    def parts(self, context: CallContext) -> Parts:
        """To be asked for before this broker lists what it has itself. Raises Problem."""
        return context.parts(self.scopes, self.noun)

    async def whole(
        self, context: CallContext, paging: Paging, own: Callable[[], Awaitable[Page[T]]]
    ) -> Page[T]:
        """The page that `own` makes of what this broker has, together with those of all others. Raises
        Problem if one is missing.

        A list of one namespace is that of the broker which serves it: see `Endpoint`.
        """
        if getattr(paging, "namespace", None) is not None:
            return await own()
        parts = self.parts(context)
        first = await own()
        if not parts.others:
            parts.check()
            return first
        more = [self._page(await other.read(self.path, _query(paging))) for other in parts.others]
        parts.check()
        return self.merged([first, *more], paging)

    async def all(self, parts: Parts, paging: Paging) -> AsyncIterator[T]:
        """All items of other brokers. Raises Problem if one of them is missing."""
        for other in parts.others:
            after: str | None = ""
            while after is not None:
                wanted = msgspec.structs.replace(paging, limit=MOST, after=after)
                page = self._page(await other.read(self.path, _query(wanted)))
                for each in page.items:
                    yield each
                after = page.next
        parts.check()

    def _page(self, body: bytes) -> Page[T]:
        return self.page(msgspec.json.decode(body, type=self.answer))

    def merged(self, pages: Sequence[Page[T]], paging: Paging) -> Page[T]:
        """An item that moves may be on two of them."""
        by_name = {self.name(item): item for page in pages for item in page.items}
        names = sorted(by_name)
        shown = names[: paging.limit]
        has_more = len(shown) < len(names) or any(page.next is not None for page in pages)
        return Page(
            items=[by_name[name] for name in shown],
            total=sum(page.total for page in pages),
            next=shown[-1] if has_more and shown else None,
        )


def _query(paging: Paging) -> dict[str, str]:
    return {name: _text(value) for name in paging.__struct_fields__ if (value := getattr(paging, name))}


def _text(value: object) -> str:
    return "true" if value is True else str(value)
