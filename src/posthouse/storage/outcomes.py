"""The outcomes of the operations of a commit."""

from dataclasses import dataclass

from posthouse.model.errors import PosthouseError
from posthouse.storage.operations import Append


class OperationRefused(PosthouseError):
    """The commit is void because its required `operation` is refused for `reason`."""

    def __init__(self, operation: Append, reason: PosthouseError) -> None:
        super().__init__(str(reason))
        self.operation = operation
        self.reason = reason


@dataclass(slots=True)
class Outcome:
    """The outcome of one operation: the offset of the batch's first record, or the new log start.

    Both are -1 for a Put, which always succeeds. The outcome of a Refer without references has the end of its
    log.
    """

    base_offset: int
    log_start: int
    refusal: PosthouseError | None = None
    """Why an operation that is not required was refused; its `base_offset` is -1."""


PUT_DONE = Outcome(-1, -1)
