"""Lists of which every broker of a cluster has a part: what belongs to the scopes that it holds."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from posthouse.model.scopes import Scope
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.other_brokers import OtherBrokers
from posthouse.protocols.admin.paging import MOST, Page, Paging
from posthouse.protocols.admin.problems import Problem
from posthouse.protocols.admin.request import HttpRequest

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

    async def pages(self, context: CallContext, paging: Paging) -> AsyncIterator[Page[T]]:
        """The pages of all other brokers. Raises Problem if one of them is missing."""
        others = context.other_brokers
        if others is None:
            return
        for scope in others.each(self.scopes, self.noun):
            yield await self._page_of(context, others, scope, paging)

    async def all(self, context: CallContext, paging: Paging) -> AsyncIterator[T]:
        """All items of other brokers. Raises Problem if one of them is missing."""
        others = context.other_brokers
        if others is None:
            return
        for scope in others.each(self.scopes, self.noun):
            after: str | None = ""
            while after is not None:
                wanted = msgspec.structs.replace(paging, limit=MOST, after=after)
                page = await self._page_of(context, others, scope, wanted)
                for each in page.items:
                    yield each
                after = page.next

    async def _page_of(
        self, context: CallContext, others: OtherBrokers, scope: Scope, paging: Paging
    ) -> Page[T]:
        query = {name: _text(value) for name in paging.__struct_fields__ if (value := getattr(paging, name))}
        request = HttpRequest(method="GET", segments=list(self.path), query=query, headers={})
        answer = await others.ask(scope, request, context.caller)
        if answer.status != 200 or not isinstance(answer.body, bytes):
            raise Problem(503, f"the broker that holds {scope} did not list its {self.noun}: {answer.status}")
        return self.page(msgspec.json.decode(answer.body, type=self.answer))

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


def _text(value: object) -> str:
    return "true" if value is True else str(value)
