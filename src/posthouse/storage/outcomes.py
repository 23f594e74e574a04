"""What became of the operations of a commit."""

from dataclasses import dataclass

from posthouse.model.errors import PosthouseError
from posthouse.storage.operations import Append


class OperationRefused(PosthouseError):
    """One operation of a commit must not be done; nothing was. The others may be tried without it."""

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


PUT_DONE = Outcome(-1, -1)
