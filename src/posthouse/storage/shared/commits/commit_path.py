"""One path of commits: what waits, and the groups that are on their way."""

import asyncio
import contextlib
from collections import deque

from posthouse.model.errors import PosthouseError
from posthouse.storage.operations import Refer
from posthouse.storage.shared.commits.commit_call import CommitCall
from posthouse.storage.shared.commits.commit_group import CommitGroup, PendingCommit
from posthouse.storage.shared.commits.payloads import CommitPayload

OPERATIONS_PER_CALL = 500
"""A call takes longer than in proportion beyond that; a single commit may be larger."""
_RUNS_PER_OPERATION = 10
_GATHER_SECONDS = 0.05
_GATHER_BYTES = 1024 * 1024
"""The object path waits for more commits while there are few: every object costs a request."""


class GroupInFlight:
    """A group from the moment its upload begins until its call is answered."""

    __slots__ = ("after", "group", "started", "upload")

    def __init__(
        self, group: CommitGroup, started: float, upload: asyncio.Future[CommitPayload], after: int = 0
    ) -> None:
        self.group = group
        self.started = started
        self.upload = upload
        self.after = after
        """The newest commit of the inline path when this group was formed: that one takes effect first."""


class CommitPath:
    """Owned by the event loop."""

    def __init__(self, call: CommitCall) -> None:
        self.call = call
        self.waiting: deque[PendingCommit] = deque()
        self.waiting_bytes = 0
        self.in_flight: deque[GroupInFlight] = deque()
        """In the order of their calls. The first is called, or will be next."""
        self.worker: asyncio.Task[None] | None = None
        self.submitted = 0
        """Commits that were added, ever."""
        self._failed_at = 0
        """The newest commit that failed."""
        self._failure: PosthouseError | None = None
        self._settled = asyncio.Event()
        """Set when commits were answered; replaced each time."""
        self._has_many = asyncio.Event()

    def add(self, commit: PendingCommit) -> None:
        self.submitted += 1
        commit.number = self.submitted
        self.waiting.append(commit)
        self.waiting_bytes += commit.size
        if self.waiting_bytes >= _GATHER_BYTES:
            self._has_many.set()

    async def gather(self) -> None:
        if self.waiting_bytes < _GATHER_BYTES:
            self._has_many.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GATHER_SECONDS):
                    await self._has_many.wait()

    def take(self, max_bytes: int) -> list[PendingCommit]:
        """The next commits that fit into one call. Which logs of namespaces it may write to is decided for a
        whole call, so commits from before a scope was taken are not mixed with later ones: they know nothing
        of its queues."""
        taken: list[PendingCommit] = []
        size = weight = 0
        while self.waiting:
            commit = self.waiting[0]
            size += commit.size
            weight += _weight(commit)
            if taken and (
                size > max_bytes or weight > OPERATIONS_PER_CALL or commit.namespaces != taken[0].namespaces
            ):
                break
            taken.append(self.waiting.popleft())
            self.waiting_bytes -= commit.size
        return taken

    @property
    def _oldest(self) -> int:
        """The first commit that is not answered."""
        if self.in_flight:
            return self.in_flight[0].group.commits[0].number
        return self.waiting[0].number if self.waiting else self.submitted + 1

    def settled(self, group: CommitGroup, failure: PosthouseError | None = None) -> None:
        if failure is not None:
            self._failed_at = max(self._failed_at, group.commits[-1].number)
            self._failure = failure
        self._settled.set()
        self._settled = asyncio.Event()

    async def passed(self, number: int) -> None:
        """Return when commits up to `number` took effect, or certainly never will."""
        while self._oldest <= number:
            await self._settled.wait()

    async def barrier(self) -> None:
        """Raises the failure if one of the commits that are pending now fails."""
        first, last = self._oldest, self.submitted
        await self.passed(last)
        if self._failure is not None and first <= self._failed_at:
            raise self._failure


def _weight(commit: PendingCommit) -> int:
    runs = sum(len(each.runs) for each in commit.operations if isinstance(each, Refer))
    return len(commit.operations) + runs // _RUNS_PER_OPERATION
