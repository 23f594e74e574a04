"""Common options of commands, and the client that they use."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from posthouse.cli.invocation import DEFAULT_BOOTSTRAP, Invocation

if TYPE_CHECKING:
    from posthouse.client import Client

_COMPLETION_SECONDS = 0.5
_LOGIN = ("tls", "ca", "certificate", "key", "user", "password_file", "mechanism")

Bootstrap = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Address of the broker; also allowed before the command."),
]
Json = Annotated[bool, typer.Option("--json", metavar="", help="Print JSON.")]


def open_client(context: typer.Context, bootstrap: str | None) -> Client:
    from posthouse.client import Client

    invocation = context.find_object(Invocation) or Invocation()
    return Client(bootstrap or invocation.bootstrap, security=invocation.security())


def pass_on_login(context: typer.Context) -> None:
    """Pass the login to Spark's processes in the environment: Spark shows options in plans, but not
    variables."""
    invocation = context.find_object(Invocation) or Invocation()
    variables = invocation.security().environment()
    # The password itself is passed on; it may be from another file than the variable names.
    os.environ.pop("POSTHOUSE_PASSWORD_FILE", None)
    os.environ.update(variables)


def complete_topic(ctx: typer.Context, incomplete: str) -> list[str]:
    return _completed(ctx, incomplete, lambda client: [topic.name for topic in client.topics()])


def complete_group(ctx: typer.Context, incomplete: str) -> list[str]:
    return _completed(ctx, incomplete, lambda client: client.group_names())


def _completed(ctx: typer.Context, incomplete: str, names: Callable[[Client], list[str]]) -> list[str]:
    """Names for shell completion. It must never fail or wait long."""
    from posthouse.client import Client, ClientError

    given = ctx.find_root().params
    where = ctx.params.get("bootstrap") or given.get("bootstrap") or DEFAULT_BOOTSTRAP
    caller = Invocation(password=os.environ.get("POSTHOUSE_PASSWORD"))
    for name in _LOGIN:
        setattr(caller, name, given.get(name))
    try:
        security = caller.security(ask=False)
        with Client(where, timeout=_COMPLETION_SECONDS, security=security) as client:
            return [name for name in names(client) if name.startswith(incomplete)]
    except (ClientError, OSError):
        return []


TopicName = Annotated[
    str, typer.Argument(metavar="TOPIC", help="Name of the topic.", autocompletion=complete_topic)
]
GroupName = Annotated[
    str, typer.Argument(metavar="GROUP", help="Name of the group.", autocompletion=complete_group)
]
GroupNames = Annotated[
    list[str], typer.Argument(metavar="GROUP", help="Names of the groups.", autocompletion=complete_group)
]
