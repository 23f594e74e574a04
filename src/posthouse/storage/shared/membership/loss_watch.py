"""Recognises a database that has lost commits: a promoted asynchronous standby, a restored backup.

Epochs never decrease, nor do the commit numbers of one incarnation. A broker remembers the highest that it
has seen of every broker, also of those that are gone, and the highest of its own commits that it has
acknowledged, in whichever role. If the database shows less, acknowledged records are gone, and offsets would
be given out twice.

The database keeps the verdict (`cluster.loss`), so that it holds for brokers that have seen nothing, too.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from posthouse.model.brokers import ClusterView
from posthouse.storage.shared.database import CommitsLost

_MOST_REMEMBERED = 1000
"""Brokers, with each of their starts: one that starts again and again must not lengthen every heartbeat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the database must show at least."""

    epoch: int = 0
    """Of the scope coordinator."""
    holder: UUID | None = None
    """Of this epoch, also after it has released the scope."""
    commits: int = 0
    """Of the holder."""
    own_commits: int = 0
    """Of this broker, in whichever role it made them."""
    commits_of: Mapping[UUID, int] = field(default_factory=dict)
    """Of every broker, by its incarnation, in the order in which they were first seen."""
    timeline: int = 0
    confirmed_losses: int = 0

    def to_json(self) -> str:
        """As the SQL function `find_loss` takes it."""
        return json.dumps(
            {
                "epoch": self.epoch,
                "holder": None if self.holder is None else str(self.holder),
                "commits": self.commits,
                "own_commits": self.own_commits,
                "commits_of": {str(broker): commits for broker, commits in self.commits_of.items()},
                "confirmed_losses": self.confirmed_losses,
            }
        )


class LossWatch:
    """One for each broker process, whatever its role."""

    def __init__(self) -> None:
        self.seen = Seen()
        self.loss: str | None = None
        """What was lost, in a sentence; None while nothing is known to be lost, or once it was confirmed."""

    def see(self, view: ClusterView) -> str | None:
        """Returns what the database does not know yet to have lost, to be recorded there."""
        before = self.seen
        if view.confirmed_losses > before.confirmed_losses:
            self.loss = None
            before = Seen(confirmed_losses=view.confirmed_losses)
        lost = _loss(before, view)
        if view.loss or lost:
            self.know(view.loss or lost or "")
        if self.loss is None:
            self.seen = _newest(before, view)
        else:
            self.seen = replace(before, confirmed_losses=view.confirmed_losses)
        return lost if view.loss is None else None

    def know(self, loss: str) -> None:
        """The database is known to have lost commits. The first verdict stays."""
        if self.loss is None:
            self.loss = str(CommitsLost(loss))

    def committed(self, commits: int) -> None:
        """What this broker has acknowledged, which no heartbeat may have shown yet."""
        if commits > self.seen.own_commits:
            self.seen = replace(self.seen, own_commits=commits)

    def took(self, own: UUID, epoch: int) -> None:
        """This broker has taken the scope coordinator."""
        seen = self.seen
        self.seen = Seen(
            epoch=epoch,
            holder=own,
            commits=seen.commits if seen.holder == own else 0,
            own_commits=seen.own_commits,
            commits_of=seen.commits_of,
            timeline=seen.timeline,
            confirmed_losses=seen.confirmed_losses,
        )


def _newest(before: Seen, view: ClusterView) -> Seen:
    holder, commits = view.holder_incarnation, view.commits
    if holder is None and view.epoch == before.epoch:  # released: what it has committed still counts
        holder, commits = before.holder, max(before.commits, view.seen_commits or 0)
    return Seen(
        epoch=view.epoch,
        holder=holder,
        commits=commits,
        own_commits=max(before.own_commits, view.own_commits),
        commits_of=_newest_commits(before.commits_of, view),
        timeline=view.timeline,
        confirmed_losses=view.confirmed_losses,
    )


def _newest_commits(before: Mapping[UUID, int], view: ClusterView) -> dict[UUID, int]:
    newest = {**before, **view.commits_of}
    excess = len(newest) - _MOST_REMEMBERED
    if excess > 0:
        gone = [incarnation for incarnation in newest if incarnation not in view.by_incarnation]
        for incarnation in gone[:excess]:
            del newest[incarnation]
    return newest


def _loss(before: Seen, now: ClusterView) -> str | None:
    has_holders = now.holder_incarnation is not None and before.holder is not None
    is_same_holder = now.holder_incarnation == before.holder
    commits = now.commits if has_holders and is_same_holder else now.seen_commits
    if now.epoch < before.epoch:
        what = f"the coordinator has epoch {now.epoch}, and had {before.epoch}"
    elif has_holders and now.epoch == before.epoch and not is_same_holder:
        what = f"the coordinator of epoch {now.epoch} is another broker than before"
    elif commits is not None and commits < before.commits:
        what = f"the coordinator's last commit has number {commits}, and had {before.commits}"
    elif now.own_commits < before.own_commits:
        what = f"a broker's last commit has number {now.own_commits}, and had {before.own_commits}"
    elif fewer := [
        (now.commits_of[broker], commits)
        for broker, commits in before.commits_of.items()
        if now.commits_of.get(broker, commits) < commits
    ]:
        what = f"a broker's last commit has number {fewer[0][0]}, and had {fewer[0][1]}"
    else:
        return None
    if before.timeline not in (0, now.timeline):
        what += f" (its timeline changed from {before.timeline} to {now.timeline}: a standby was promoted)"
    return what
