"""Ends the transactions of several producers in one step, with a stored sequence number.

The calls are idempotent, and are retried while the broker cannot be reached: a repeated commit is answered as
done.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from posthouse.client.backoff import RETRY_SECONDS, ask_persistently
from posthouse.client.cluster import Cluster
from posthouse.client.errors import RequestRefused, refused
from posthouse.protocols.kafka.codec.own.end_together import (
    ABORT,
    COMMIT,
    NO_SEQUENCE,
    QUERY,
    EndTogetherMember,
    EndTogetherRequest,
    EndTogetherResponse,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitMember:
    """One producer's open transaction. Its id is the name, a slash and a number."""

    transactional_id: str
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    is_new: bool
    """False: this or a later number was committed before, and the members' records are aborted."""
    sequence: int | None
    """The highest committed number of the name."""


def commit_together(
    cluster: Cluster,
    name: str,
    sequence: int | None,
    members: Sequence[CommitMember],
    *,
    patience: float = RETRY_SECONDS,
) -> Committed:
    """Commit all of the members' transactions and the number, or nothing."""
    request = EndTogetherRequest(
        action=COMMIT,
        name=name,
        sequence=NO_SEQUENCE if sequence is None else sequence,
        members=[_member(each) for each in members],
    )
    response = _ask(cluster, request, patience)
    return Committed(is_new=response.has_ended, sequence=_sequence(response))


def abort_together(
    cluster: Cluster,
    name: str,
    sequence: int | None,
    members: Sequence[CommitMember] | None,
    *,
    patience: float = RETRY_SECONDS,
) -> None:
    """Abort those that are still open; None: all open ones, unless the number was committed."""
    request = EndTogetherRequest(
        action=ABORT,
        name=name,
        sequence=NO_SEQUENCE if sequence is None else sequence,
        members=None if members is None else [_member(each) for each in members],
    )
    _ask(cluster, request, patience)


def fence_sequence(cluster: Cluster, name: str, *, patience: float = RETRY_SECONDS) -> int | None:
    """The highest number that was committed under the name."""
    return _sequence(_ask(cluster, EndTogetherRequest(action=QUERY, name=name), patience))


def _ask(cluster: Cluster, request: EndTogetherRequest, patience: float) -> EndTogetherResponse:
    def refusal(response: EndTogetherResponse) -> RequestRefused | None:
        code = response.error_code
        return refused(code, response.error_message, request.name) if code else None

    return ask_persistently(cluster, request, EndTogetherResponse, refusal, patience)


def _member(member: CommitMember) -> EndTogetherMember:
    return EndTogetherMember(
        transactional_id=member.transactional_id, producer_id=member.producer_id, producer_epoch=member.epoch
    )


def _sequence(response: EndTogetherResponse) -> int | None:
    return None if response.sequence == NO_SEQUENCE else response.sequence
