"""AlterUserScramCredentials: creates and deletes users and changes passwords, without the password itself.

The client sends the salted password. All changes of one user are made in one step, or none.
"""

import logging
from dataclasses import dataclass, field

from posthouse.broker.access.operations import Operation
from posthouse.broker.access.scram import verifier_of_salted
from posthouse.broker.access.users import User
from posthouse.model.errors import InvalidCredential, PosthouseError
from posthouse.model.scram import DEFAULT_ITERATIONS, Mechanism
from posthouse.protocols.kafka.codec.generated.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from posthouse.protocols.kafka.errors import ErrorCode, Refused, code_of
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.permissions import require_on_cluster
from posthouse.protocols.kafka.scram_codes import mechanism_of

log = logging.getLogger(__name__)

_WEAK_BELOW = 8192


@dataclass(slots=True)
class _Changes:
    """The changes of one user."""

    deletions: list[ScramCredentialDeletion] = field(default_factory=list)
    upsertions: list[ScramCredentialUpsertion] = field(default_factory=list)


async def handle(
    context: Context, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    require_on_cluster(context, Operation.ALTER)
    return AlterUserScramCredentialsResponse(
        results=[await _altered(context, name, each) for name, each in _by_user(request).items()]
    )


def _by_user(request: AlterUserScramCredentialsRequest) -> dict[str, _Changes]:
    users: dict[str, _Changes] = {}
    for deletion in request.deletions:
        users.setdefault(deletion.name, _Changes()).deletions.append(deletion)
    for upsertion in request.upsertions:
        users.setdefault(upsertion.name, _Changes()).upsertions.append(upsertion)
    return users


async def _altered(context: Context, name: str, wanted: _Changes) -> AlterUserScramCredentialsResult:
    users = context.broker.access.users
    try:
        removed = [mechanism_of(each.mechanism) for each in wanted.deletions]
        changed = [mechanism_of(each.mechanism) for each in wanted.upsertions]
        _check(name, users.get(name), removed, changed)
        verifiers = [
            verifier_of_salted(mechanism, bytes(each.salted_password), bytes(each.salt), each.iterations)
            for mechanism, each in zip(changed, wanted.upsertions, strict=True)
        ]
        await users.replace(name, verifiers, removed)
    except (PosthouseError, Refused) as error:
        if isinstance(error, InvalidCredential):
            context.offended()
        return AlterUserScramCredentialsResult(user=name, error_code=code_of(error), error_message=str(error))
    for mechanism in removed:
        context.guard.note("delete-credential", f"user:{name}", mechanism)
    for mechanism, each in zip(changed, wanted.upsertions, strict=True):
        context.guard.note("set-credential", f"user:{name}", mechanism)
        if each.iterations < _WEAK_BELOW:
            log.warning(
                "user %r: the new %s password has %d iterations, so it is easier to guess from a stolen "
                "catalog than with the default of %d; set scram_min_iterations to refuse such passwords",
                *(name, mechanism, each.iterations, DEFAULT_ITERATIONS),
            )
    return AlterUserScramCredentialsResult(user=name)


def _check(name: str, user: User | None, removed: list[Mechanism], changed: list[Mechanism]) -> None:
    if len({*removed, *changed}) < len(removed) + len(changed):
        raise Refused(ErrorCode.DUPLICATE_RESOURCE, f"a credential of {name!r} is changed more than once")
    for mechanism in removed:
        if user is None or mechanism not in user.verifiers:
            raise Refused(ErrorCode.RESOURCE_NOT_FOUND, f"{name!r} has no credential for {mechanism}")


def _refuse(
    context: Context, request: AlterUserScramCredentialsRequest, code: ErrorCode, message: str
) -> AlterUserScramCredentialsResponse:
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=name, error_code=code, error_message=message)
            for name in _by_user(request)
        ]
    )


HANDLER = Handler(key=51, handle=handle, refuse=_refuse)
