"""Users and their permissions."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from posthouse.broker.access.acls import Acl
from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.access.users import check_name, check_password
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.management.errors import bad_request, not_found
from posthouse.protocols.admin.management.listing import item, listed
from posthouse.protocols.admin.management.permission_patterns import (
    OPERATIONS,
    VirtualHost,
    acls_of,
    pattern_of,
)
from posthouse.protocols.admin.management.queues import CREATED
from posthouse.protocols.admin.management.requests import body_of, require_keys, text, vhost_of
from posthouse.protocols.admin.reachable_namespaces import namespace_names
from posthouse.protocols.admin.request import HttpRequest
from posthouse.protocols.admin.response import NO_CONTENT, Response, json_response
from posthouse.protocols.admin.router import Parameters, Route
from posthouse.protocols.admin.turns import in_turns

_ALL: Final = ".*"
_TRANSLATED: Final = frozenset(operation for each in OPERATIONS.values() for operation in each)
"""Operations that permissions are made of."""


def user_view(context: CallContext, name: str) -> dict[str, Any]:
    """Without the verifiers of the password, which are never shown."""
    return {
        "name": name,
        "password_hash": "",
        "hashing_algorithm": "",
        "tags": tags_of(context, name),
        "limits": {},
    }


def tags_of(context: CallContext, name: str) -> list[str]:
    is_super = name in context.settings.superusers or not context.settings.must_log_in
    return ["administrator" if is_super else "management"]


def user_names(context: CallContext) -> list[str]:
    return sorted(user.name for user in context.broker.access.users)


def permission_view(context: CallContext, user: str, vhost: str) -> dict[str, Any]:
    mine = [acl for acl in context.broker.access.acls if _is_of(acl, user)]
    return _permission_view(context, user, _virtual_host(context, vhost), mine)


def _permission_view(
    context: CallContext, user: str, vhost: VirtualHost, mine: Sequence[Acl]
) -> dict[str, Any]:
    """`mine` are those of the user."""
    view: dict[str, Any] = {"user": user, "vhost": vhost.name}
    if user in context.settings.superusers:
        return view | dict.fromkeys(OPERATIONS, _ALL)
    return view | {word: pattern_of(mine, vhost, word) for word in OPERATIONS}


def _virtual_host(context: CallContext, name: str) -> VirtualHost:
    return VirtualHost(name=name, others=[each for each in namespace_names(context) if each != name])


def _is_of(acl: Acl, user: str) -> bool:
    return acl.kind is Kind.TOPIC and acl.allow and acl.principal == f"User:{user}"


async def permissions(context: CallContext) -> list[dict[str, Any]]:
    """In turns: there may be very many users and ACLs."""
    by_principal: dict[str, list[Acl]] = {}
    async for acl in in_turns(list(context.broker.access.acls)):
        if acl.kind is Kind.TOPIC and acl.allow:
            by_principal.setdefault(acl.principal, []).append(acl)
    vhosts = [_virtual_host(context, name) for name in namespace_names(context)]
    found = []
    async for user in in_turns(user_names(context), steps=1):
        mine = by_principal.get(f"User:{user}", ())
        views = [_permission_view(context, user, vhost, mine) for vhost in vhosts]
        found += [view for view in views if any(view[word] for word in OPERATIONS)]
    return found


async def set_user(context: CallContext, name: str, body: Mapping[str, Any]) -> bool:
    """Whether the user is new. Tags mean nothing here: superusers are a setting of the broker."""
    users = context.broker.access.users
    is_new = users.get(name) is None
    if "password" in body:
        check_name(name)
        check_password(text(body, "password"))
        context.guard.note("set-credential", f"user:{name}")
        await users.set_password(name, text(body, "password"))
    elif is_new:
        raise bad_request(
            "give the password: users are stored with SCRAM's keys, which cannot be made of RabbitMQ's hashes"
        )
    return is_new


async def set_permissions(context: CallContext, user: str, name: str, body: Mapping[str, Any]) -> None:
    """`name` is that of a virtual host."""
    vhost = _virtual_host(context, name)
    wanted = [acl for word in OPERATIONS for acl in acls_of(user, vhost, word, text(body, word))]
    _check_changeable(context, user, vhost)
    for acl in wanted:
        acl.check()
    for acl in wanted:
        context.guard.note("create-acl", acl.resource, acl.rule)
    await context.broker.access.acls.add(wanted)
    await _remove(context, user, vhost, keep=frozenset(wanted))


def _check_changeable(context: CallContext, user: str, vhost: VirtualHost) -> None:
    """Raises Refusal where an ACL of the user reaches other virtual hosts, too: the change would not be what
    the client asked for, or would change the others."""
    for acl in context.broker.access.acls:
        if (
            _is_of(acl, user)
            and acl.operation in _TRANSLATED | {Operation.ALL}
            and vhost.is_reached_by(acl)
            and vhost.others_reached_by(acl)
        ):
            raise bad_request(
                f"user {user!r} has an ACL that reaches other virtual hosts, too: {acl.operation} on "
                f"{acl.resource}; change it by /v1/acls or posthouse acl"
            )


async def _remove(context: CallContext, user: str, vhost: VirtualHost, keep: frozenset[Acl]) -> None:
    """Remove the ACLs of the user for this virtual host that are not in `keep`."""

    def is_noted(acl: Acl) -> bool:
        """Audited inside the change, before it is made."""
        is_meant = (
            _is_of(acl, user)
            and acl not in keep
            and acl.operation in _TRANSLATED
            and vhost.is_reached_by(acl)
            and not vhost.others_reached_by(acl)
        )
        if is_meant:
            context.guard.note("delete-acl", acl.resource, acl.rule)
        return is_meant

    await context.broker.access.acls.remove(is_noted)


def _known(context: CallContext, name: str) -> str:
    if context.broker.access.users.get(name) is None:
        raise not_found()
    return name


async def _list(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    context.require_cluster(Operation.DESCRIBE)
    return await listed(
        request, user_names(context), lambda name: user_view(context, name), lambda name: name
    )


async def _show(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    context.require_cluster(Operation.DESCRIBE)
    return item(request, user_view(context, _known(context, parameters["user"])))


async def _set(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    context.require_cluster(Operation.ALTER)
    is_new = await set_user(context, parameters["user"], body_of(request))
    return CREATED if is_new else NO_CONTENT


async def _delete(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    context.require_cluster(Operation.ALTER)
    name = _known(context, parameters["user"])
    context.guard.note("delete-credential", f"user:{name}")
    await context.broker.access.users.delete(name)
    return NO_CONTENT


async def _permissions(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    context.require_cluster(Operation.DESCRIBE)
    views = await permissions(context)
    if "user" in parameters:
        views = [view for view in views if view["user"] == _known(context, parameters["user"])]
    if "vhost" in parameters:
        vhost = vhost_of(context, parameters)
        views = [view for view in views if view["vhost"] == vhost]
    return await listed(request, views, lambda view: view, lambda view: str(view["user"]))


async def _permission(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    context.require_cluster(Operation.DESCRIBE)
    vhost = vhost_of(context, parameters)
    return item(request, permission_view(context, _known(context, parameters["user"]), vhost))


async def _permit(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    context.require_cluster(Operation.ALTER)
    vhost, body = vhost_of(context, parameters), body_of(request)
    require_keys(body, *OPERATIONS)
    before = permission_view(context, _known(context, parameters["user"]), vhost)
    await set_permissions(context, parameters["user"], vhost, body)
    return NO_CONTENT if any(before[word] for word in OPERATIONS) else CREATED


async def _forbid(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    context.require_cluster(Operation.ALTER)
    user, vhost = parameters["user"], _virtual_host(context, vhost_of(context, parameters))
    _check_changeable(context, _known(context, user), vhost)
    await _remove(context, user, vhost, frozenset())
    return NO_CONTENT


async def _who(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    name = context.guard.principal.name
    return json_response({"name": name, "tags": tags_of(context, name)})


ROUTES: Final = (
    Route(method="GET", path="/api/whoami", handler=_who),
    Route(method="GET", path="/api/users", handler=_list),
    Route(method="GET", path="/api/users/{user}", handler=_show),
    Route(method="PUT", path="/api/users/{user}", handler=_set),
    Route(method="DELETE", path="/api/users/{user}", handler=_delete),
    Route(method="GET", path="/api/users/{user}/permissions", handler=_permissions),
    Route(method="GET", path="/api/permissions", handler=_permissions),
    Route(method="GET", path="/api/vhosts/{vhost}/permissions", handler=_permissions),
    Route(method="GET", path="/api/permissions/{vhost}/{user}", handler=_permission),
    Route(method="PUT", path="/api/permissions/{vhost}/{user}", handler=_permit),
    Route(method="DELETE", path="/api/permissions/{vhost}/{user}", handler=_forbid),
)
