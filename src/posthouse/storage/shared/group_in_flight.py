"""A group of commits from the moment its upload begins until its call is answered."""

import asyncio

from posthouse.storage.outcomes import Outcome
from posthouse.storage.shared.commit_group import CommitGroup
from posthouse.storage.shared.payloads import Payload


class GroupInFlight:
    """Has either a payload, or an upload that returns one."""

    __slots__ = ("_after", "_payload", "group", "started", "upload")

    def __init__(
        self,
        group: CommitGroup,
        started: float,
        *,
        payload: Payload | None = None,
        upload: asyncio.Task[Payload] | None = None,
        after: asyncio.Future[list[Outcome]] | None = None,
    ) -> None:
        self.group = group
        self.started = started
        self._payload = payload
        self.upload = upload
        self._after = after
        """A commit of another path that must take effect before this group."""

    async def uploaded(self) -> Payload:
        """Return when the group may be called. Raises Unavailable."""
        if self._payload is None:
            assert self.upload is not None
            self._payload = await self.upload
        if self._after is not None and not self._after.done():
            await asyncio.wait([self._after])
        return self._payload
