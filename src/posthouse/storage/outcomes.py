"""What became of the operations of a commit."""

from dataclasses import dataclass

from posthouse.model.errors import PosthouseError
from posthouse.storage.operations import Append


class OperationRefused(PosthouseError):
    """A commit is void because `operation`, which it requires, is refused for `reason`."""

    def __init__(self, operation: Append, reason: PosthouseError) -> None:
        super().__init__(str(reason))
        self.operation = operation
        self.reason = reason


@dataclass(slots=True)
class Outcome:
    """What became of one operation: the offset given to the batch's first record, or the new log start.

    Both are -1 for a Put, which can only succeed. A Refer that had nothing left to refer to has the end of
    its log.
    """

    base_offset: int
    log_start: int
    refusal: PosthouseError | None = None
    """Why the operation was not done, of one that is not required; its `base_offset` is -1."""


PUT_DONE = Outcome(-1, -1)
