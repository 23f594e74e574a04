"""Permissions (ACLs): listed, added, deleted by a filter."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from posthouse.broker.access.acls import ANY_HOST, Acl, Pattern
from posthouse.broker.access.operations import Kind, Operation
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.endpoint import Endpoint, NoBody
from posthouse.protocols.admin.paging import Page, Paging, page_in_turns
from posthouse.protocols.admin.problems import Problem
from posthouse.protocols.admin.turns import in_turns

_MOST_SHOWN = 1000

Principal = Annotated[str, Meta(description="User:NAME, or User:* for everybody.")]
Host = Annotated[str, Meta(description="Address that the user connects from; * for any.")]


class AclView(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    principal: Principal
    operation: Operation
    kind: Kind
    name: Annotated[str, Meta(description="Name of the resource, its beginning if prefixed, or * for all.")]
    pattern: Pattern = Pattern.LITERAL
    host: Host = ANY_HOST
    allow: Annotated[bool, Meta(description="false forbids, which outweighs all that allow.")] = True

    @classmethod
    def of(cls, acl: Acl) -> "AclView":
        return cls(
            principal=acl.principal,
            operation=acl.operation,
            kind=acl.kind,
            name=acl.name,
            pattern=acl.pattern,
            host=acl.host,
            allow=acl.allow,
        )

    def acl(self) -> Acl:
        return Acl(
            kind=self.kind,
            name=self.name,
            pattern=self.pattern,
            principal=self.principal,
            host=self.host,
            operation=self.operation,
            allow=self.allow,
        )


class NewAcls(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    acls: Annotated[list[AclView], Meta(min_length=1, max_length=_MOST_SHOWN)]


class AclList(msgspec.Struct, frozen=True, kw_only=True):
    acls: Annotated[list[AclView], Meta(description=f"At most {_MOST_SHOWN} of them.")]
    total: int


class AclSelection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is given must be equal."""

    principal: Principal | None = None
    operation: Operation | None = None
    kind: Kind | None = None
    name: str | None = None
    pattern: Pattern | None = None
    host: Host | None = None
    allow: bool | None = None
    dry_run: Annotated[bool, Meta(description="Only say which would be deleted.")] = False

    def matches(self, acl: Acl) -> bool:
        return all(
            wanted is None or wanted == found
            for wanted, found in (
                (self.principal, acl.principal),
                (self.operation, acl.operation),
                (self.kind, acl.kind),
                (self.name, acl.name),
                (self.pattern, acl.pattern),
                (self.host, acl.host),
                (self.allow, acl.allow),
            )
        )

    @property
    def is_empty(self) -> bool:
        return self == AclSelection(dry_run=self.dry_run)


async def _list(context: CallContext, paging: Paging, body: NoBody) -> Page[AclView]:
    context.require_cluster(Operation.DESCRIBE)
    found = {acl.key().decode(): acl async for acl in in_turns(list(context.broker.access.acls))}
    return await page_in_turns(found, paging, lambda key: AclView.of(found[key]), sees=lambda key: True)


async def _add(context: CallContext, parameters: msgspec.Struct, body: NewAcls) -> AclList:
    context.require_cluster(Operation.ALTER)
    _check_enforced(context)
    new = [each.acl() for each in body.acls]
    for acl in new:
        acl.check()
    for acl in new:
        context.guard.note("create-acl", acl.resource, acl.rule)
    await context.broker.access.acls.add(new)
    return AclList(acls=body.acls, total=len(new))


async def _delete(context: CallContext, parameters: msgspec.Struct, body: AclSelection) -> AclList:
    context.require_cluster(Operation.ALTER)
    _check_enforced(context)
    if body.is_empty:
        raise Problem(400, "give at least one field to choose permissions by; all of them would be deleted")
    acls = context.broker.access.acls
    if body.dry_run:
        meant = [each for each in acls if body.matches(each)]
    else:
        meant = await acls.remove(lambda acl: _is_noted_match(context, body, acl))
    return AclList(acls=[AclView.of(each) for each in meant[:_MOST_SHOWN]], total=len(meant))


def _is_noted_match(context: CallContext, wanted: AclSelection, acl: Acl) -> bool:
    """Asked inside the change, and audited there: a client that leaves meanwhile cannot prevent the entry."""
    if not wanted.matches(acl):
        return False
    context.guard.note("delete-acl", acl.resource, acl.rule)
    return True


def _check_enforced(context: CallContext) -> None:
    if not context.broker.access.is_required:
        raise Problem(
            409,
            "clients need not log in, so permissions would protect nothing; start the broker with "
            "--authentication required",
        )


ACLS: Final = (
    Endpoint(
        method="GET",
        path="/v1/acls",
        summary="List permissions",
        tag="access",
        handler=_list,
        parameters=Paging,
        result=Page[AclView],
    ),
    Endpoint(
        method="POST",
        path="/v1/acls",
        summary="Add permissions, all or none",
        tag="access",
        handler=_add,
        body=NewAcls,
        result=AclList,
        status=201,
        problems=(409,),
    ),
    Endpoint(
        method="POST",
        path="/v1/acls/delete",
        summary="Delete the permissions that fit a filter",
        tag="access",
        handler=_delete,
        body=AclSelection,
        result=AclList,
        problems=(409,),
    ),
)
