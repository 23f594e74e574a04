"""Recognises a database that has lost commits: a promoted asynchronous standby, a restored backup.

Epochs never decrease, nor do the commit numbers of one incarnation. A broker remembers the highest that it
has seen. If the database shows less, acknowledged records are gone, and offsets would be given out twice.
"""

from posthouse.model.brokers import ClusterView


class LossWatch:
    """One for each broker process, whatever its role."""

    def __init__(self) -> None:
        self._newest: ClusterView | None = None
        self.loss: str | None = None
        """What was lost, in a sentence; None while nothing is known to be lost, or once it was confirmed."""
        self._confirmed = 0

    def see(self, view: ClusterView) -> None:
        if self.loss is not None:
            if view.confirmed_losses > self._confirmed:
                self.loss = None
                self._newest = view
            return
        if self._newest is not None:
            self.loss = _loss(self._newest, view)
        if self.loss is None:
            self._newest = view
        self._confirmed = view.confirmed_losses


def _loss(before: ClusterView, now: ClusterView) -> str | None:
    has_holders = now.holder_incarnation is not None and before.holder_incarnation is not None
    is_same_holder = now.holder_incarnation == before.holder_incarnation
    if now.epoch < before.epoch:
        what = f"the lease has epoch {now.epoch}, and had {before.epoch}"
    elif has_holders and now.epoch == before.epoch and not is_same_holder:
        what = f"the lease of epoch {now.epoch} has another holder than before"
    elif has_holders and is_same_holder and now.commits < before.commits:
        what = f"the holder's last commit has number {now.commits}, and had {before.commits}"
    else:
        return None
    how = ""
    if now.timeline != before.timeline:
        how = f" Its timeline changed from {before.timeline} to {now.timeline}: a standby was promoted."
    return (
        f"the database has lost acknowledged commits: {what}.{how} This broker does not take over until an "
        "operator accepts the loss with 'posthouse storage accept-loss'"
    )
