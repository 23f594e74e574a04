"""`posthouse acl …`: manage ACLs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from posthouse.cli.options import Bootstrap, Json, open_client
from posthouse.cli.output import counted, print_json, print_table, say

if TYPE_CHECKING:
    from posthouse.client.permissions import Permission, ResourceKind

app = typer.Typer(
    name="acl",
    help="Manage ACLs: which user may do what to which topic, group or queue.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

_COLUMNS = ("user", "may", "operation", "kind", "name", "host")

User = Annotated[str, typer.Argument(metavar="USER", help="Name of a user; '*' is every authenticated user.")]
Operations = Annotated[
    str,
    typer.Argument(
        metavar="OPERATIONS",
        help="read, write, create, delete, alter, describe, alter-configs, describe-configs, "
        "idempotent-write, two-phase-commit, cluster-action or all; separate several with commas.",
    ),
]
SomeOperations = Annotated[
    str,
    typer.Argument(metavar="OPERATIONS", help="Operations of the permissions to remove; 'any' matches all."),
]
KindName = Annotated[
    str,
    typer.Argument(
        metavar="KIND", help="topic (also queues and exchanges), group, transactional-id or cluster."
    ),
]
SomeKind = Annotated[
    str | None, typer.Argument(metavar="KIND", help="topic, group, transactional-id or cluster.")
]
Name = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME", help="Name of the resource; '*' is all of the kind. The cluster has no name."
    ),
]
Prefix = Annotated[
    bool,
    typer.Option(
        "--prefix", metavar="", help="All names that begin with NAME, also of resources created later."
    ),
]
Host = Annotated[
    str, typer.Option(metavar="ADDRESS", help="Only for connections from this address; '*' is any address.")
]
SomeHost = Annotated[str | None, typer.Option(metavar="ADDRESS", help="Only permissions for this address.")]
OfUser = Annotated[str | None, typer.Option("--user", metavar="USER", help="Only permissions of this user.")]
OfTopic = Annotated[
    str | None, typer.Option("--topic", metavar="TOPIC", help="Permissions that apply to this topic.")
]
OfGroup = Annotated[
    str | None, typer.Option("--group", metavar="GROUP", help="Permissions that apply to this group.")
]


@app.command(
    epilog="`posthouse acl allow alice read,write topic orders`\n\n"
    "`posthouse acl allow billing read group billing`\n\n"
    "`posthouse acl allow billing all topic billing. --prefix`\n\n"
    "`posthouse acl allow ops alter,describe cluster --host 10.0.0.7`"
)
def allow(
    context: typer.Context,
    user: User,
    operations: Operations,
    kind: KindName,
    name: Name = None,
    prefix: Prefix = False,
    host: Host = "*",
    json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Allow a user operations on a resource. Read, write, delete and alter include describe."""
    _add(context, user, operations, kind, name, prefix, host, json, bootstrap, allow=True)


@app.command(epilog="`posthouse acl deny alice write topic orders.archive`")
def deny(
    context: typer.Context,
    user: User,
    operations: Operations,
    kind: KindName,
    name: Name = None,
    prefix: Prefix = False,
    host: Host = "*",
    json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Deny a user operations on a resource. A deny overrides every allow.

    Everything is denied until it is allowed; use this for exceptions to what is allowed.
    """
    _add(context, user, operations, kind, name, prefix, host, json, bootstrap, allow=False)


@app.command("list", epilog="`posthouse acl list --user alice`\n\n`posthouse acl list --topic orders`")
def list_acls(
    context: typer.Context,
    user: OfUser = None,
    topic: OfTopic = None,
    group: OfGroup = None,
    json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """List the permissions."""
    from posthouse.client.permissions import PermissionFilter, ResourceKind

    if topic is not None and group is not None:
        raise typer.BadParameter("give one of them", ctx=context, param_hint="--topic and --group")
    kind = ResourceKind.TOPIC if topic is not None else ResourceKind.GROUP if group is not None else None
    with open_client(context, bootstrap) as client:
        found = client.permissions(
            PermissionFilter(
                user=None if user is None else _user(user), kind=kind, name=group if topic is None else topic
            )
        )
    if json:
        print_json([_described(each) for each in found])
    elif found:
        print_table(_COLUMNS, map(_row, found))
    else:
        say("there are no such permissions; give some with 'posthouse acl allow'")


@app.command(
    epilog="`posthouse acl remove alice read,write topic orders`\n\n"
    "`posthouse acl remove alice any topic orders. --prefix`\n\n"
    "`posthouse acl remove alice`"
)
def remove(
    context: typer.Context,
    user: User,
    operations: SomeOperations = "any",
    kind: SomeKind = None,
    name: Name = None,
    prefix: Prefix = False,
    host: SomeHost = None,
    json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Remove permissions, both allow and deny.

    Removes permissions on exactly this name or prefix, or all permissions of a user.
    """
    from posthouse.client.errors import BadArgument, ClientError
    from posthouse.client.permissions import PermissionFilter, parse_kind, parse_operations

    wanted_kind = None if kind is None else parse_kind(kind)
    if prefix and name is None:
        raise BadArgument("--prefix needs NAME; give one")
    if wanted_kind is not None and name is not None:
        name = _name(wanted_kind, name)
    wanted = [
        PermissionFilter(
            user=_user(user),
            operation=operation,
            kind=wanted_kind,
            name=name,
            is_prefix=None if name is None else prefix,
            host=host,
        )
        for operation in ([None] if operations == "any" else parse_operations(operations))
    ]
    with open_client(context, bootstrap) as client:
        removed = client.remove_permissions(wanted)
    if not removed:
        raise ClientError("there is no such permission; see 'posthouse acl list' for those there are")
    if json:
        print_json([_described(each) for each in removed])
    else:
        print_table(_COLUMNS, map(_row, removed))
        say(f"removed {counted(len(removed), 'permission')}")


def _add(
    context: typer.Context,
    user: str,
    operations: str,
    kind: str,
    name: str | None,
    prefix: bool,
    host: str,
    json: bool,
    bootstrap: str | None,
    *,
    allow: bool,
) -> None:
    from posthouse.client.permissions import Permission, parse_kind, parse_operations

    of_kind = parse_kind(kind)
    added = [
        Permission(
            user=_user(user),
            allow=allow,
            operation=operation,
            kind=of_kind,
            name=_name(of_kind, name),
            is_prefix=prefix,
            host=host,
        )
        for operation in parse_operations(operations)
    ]
    with open_client(context, bootstrap) as client:
        client.add_permissions(added)
    if json:
        print_json([_described(each) for each in added])
    else:
        say("; ".join(map(_sentence, added)))


def _user(text: str) -> str:
    """Also accepts the spelling of Kafka's tools."""
    return text.removeprefix("User:")


def _name(kind: ResourceKind, name: str | None) -> str:
    from posthouse.client.errors import BadArgument
    from posthouse.client.permissions import THE_CLUSTER, ResourceKind

    if kind is ResourceKind.CLUSTER:
        if name not in (None, "*", THE_CLUSTER):
            raise BadArgument(f"there is one cluster, which needs no name; leave {name!r} out")
        return THE_CLUSTER
    if not name:
        raise BadArgument(f"the name of the {kind.word} is missing; give it, or '*' for all")
    return name


def _row(permission: Permission) -> tuple[str, ...]:
    name = permission.name + ("…" if permission.is_prefix else "")
    return (
        permission.user,
        "yes" if permission.allow else "no",
        permission.operation.word,
        permission.kind.word,
        name,
        permission.host,
    )


def _sentence(permission: Permission) -> str:
    from posthouse.client.permissions import ANY_HOST, ANY_NAME, ResourceKind

    who = "everybody" if permission.user == "*" else permission.user
    what = f"{permission.kind.word} {permission.name!r}"
    if permission.kind is ResourceKind.CLUSTER:
        what = "the cluster"
    elif permission.is_prefix:
        what = f"every {permission.kind.word} whose name begins with {permission.name!r}"
    elif permission.name == ANY_NAME:
        what = f"every {permission.kind.word}"
    verb = "may" if permission.allow else "may not"
    place = "" if permission.host == ANY_HOST else f" from {permission.host}"
    return f"{who} {verb} {permission.operation.word} {what}{place}"


def _described(permission: Permission) -> dict[str, Any]:
    return {
        "user": permission.user,
        "allow": permission.allow,
        "operation": permission.operation.word,
        "kind": permission.kind.word,
        "name": permission.name,
        "prefix": permission.is_prefix,
        "host": permission.host,
    }
