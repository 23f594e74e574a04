"""Common options of commands, and the client that they use."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from posthouse.cli.invocation import Invocation

if TYPE_CHECKING:
    from posthouse.client import Client
    from posthouse.client.admin_client import AdminClient

_COMPLETION_SECONDS = 0.5
_COMPLETIONS = 100
_LOGIN = ("profile", "tls", "ca", "certificate", "key", "user", "password_file", "mechanism")

Bootstrap = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Address of the broker; also allowed before the command."),
]
Admin = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Address of the broker for operators (HTTP); also allowed before the command.",
    ),
]
Namespace = Annotated[
    str, typer.Option("--namespace", "-N", metavar="NAME", help="Namespace (AMQP virtual host).")
]
SomeNamespace = Annotated[
    str | None,
    typer.Option("--namespace", "-N", metavar="NAME", help="Only of this namespace (AMQP virtual host)."),
]
Unset = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY", help="A setting to reset to its default; may be given several times."),
]
Json = Annotated[bool, typer.Option("--json", metavar="", help="Print JSON.")]


def open_client(context: typer.Context, bootstrap: str | None) -> Client:
    from posthouse.client import Client

    invocation = invocation_of(context, bootstrap)
    return Client(invocation.kafka_address, security=invocation.security())


def open_admin(context: typer.Context, admin: str | None) -> AdminClient:
    from posthouse.client.admin_client import AdminClient

    invocation = invocation_of(context)
    invocation.admin = admin or invocation.admin
    return AdminClient(invocation.admin_address, security=invocation.security())


def invocation_of(context: typer.Context, bootstrap: str | None = None) -> Invocation:
    invocation = context.find_object(Invocation) or Invocation()
    invocation.bootstrap = bootstrap or invocation.bootstrap
    return invocation


def none_yet(context: typer.Context, nouns: str, advice: str = "") -> str:
    """The sentence for an empty list. A user who logs in may not be allowed to see what there is."""
    if invocation_of(context).security(ask=False).user is not None:
        return f"there are no {nouns} that you may see"
    return f"there are no {nouns} yet{f'; {advice}' if advice else ''}"


def pass_on_login(context: typer.Context, bootstrap: str | None) -> None:
    """Pass the login to Spark's processes in the environment: Spark shows options in plans, but not
    variables."""
    variables = invocation_of(context, bootstrap).security().environment()
    # The password itself is passed on, and it may be from another file than the variable names.
    os.environ.pop("POSTHOUSE_PASSWORD_FILE", None)
    os.environ.update(variables)


def complete_topic(ctx: typer.Context, incomplete: str) -> list[str]:
    return _completed(ctx, incomplete, lambda client: [topic.name for topic in client.topics()])


def complete_group(ctx: typer.Context, incomplete: str) -> list[str]:
    return _completed(ctx, incomplete, lambda client: client.group_names())


def _completed(ctx: typer.Context, incomplete: str, names: Callable[[Client], list[str]]) -> list[str]:
    """Names for shell completion. It must never fail or wait long."""
    from posthouse.client import Client, ClientError

    caller = _caller(ctx)
    try:
        security = caller.security(ask=False)
        with Client(caller.kafka_address, timeout=_COMPLETION_SECONDS, security=security) as client:
            return _offered(names(client), incomplete)
    except (ClientError, OSError):
        return []


def _caller(ctx: typer.Context) -> Invocation:
    """What was typed so far of the options."""
    given = ctx.find_root().params
    caller = Invocation(
        bootstrap=ctx.params.get("bootstrap") or given.get("bootstrap"),
        admin=ctx.params.get("admin") or given.get("admin"),
        password=os.environ.get("POSTHOUSE_PASSWORD"),
    )
    for name in _LOGIN:
        setattr(caller, name, given.get(name))
    return caller


def complete_queue(ctx: typer.Context, incomplete: str) -> list[str]:
    from posthouse.client.admin_client import AdminClient
    from posthouse.client.errors import ClientError

    caller = _caller(ctx)
    try:
        security = caller.security(ask=False)
        with AdminClient(caller.admin_address, timeout=_COMPLETION_SECONDS, security=security) as client:
            names = [
                queue["name"] for queue in client.items("/v1/queues", most=_COMPLETIONS, search=incomplete)
            ]
    except (ClientError, OSError):
        return []
    return _offered(names, incomplete)


def _offered(names: list[str], incomplete: str) -> list[str]:
    """Without names that would send escape sequences to the terminal."""
    return [name for name in names if name.startswith(incomplete) and name.isprintable()]


TopicName = Annotated[
    str, typer.Argument(metavar="TOPIC", help="Name of the topic.", autocompletion=complete_topic)
]
GroupName = Annotated[
    str, typer.Argument(metavar="GROUP", help="Name of the group.", autocompletion=complete_group)
]
GroupNames = Annotated[
    list[str], typer.Argument(metavar="GROUP", help="Names of the groups.", autocompletion=complete_group)
]


def pairs_of(texts: Sequence[str] | None) -> dict[str, str]:
    """Settings that are given as KEY=VALUE. Raises BadParameter."""
    pairs = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="-c")
        pairs[key.strip()] = value.strip()
    return pairs
