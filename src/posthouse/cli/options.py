"""What commands have in common: their way to the broker, and options that several of them take."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from posthouse.cli.invocation import DEFAULT_BOOTSTRAP, Invocation

if TYPE_CHECKING:
    from posthouse.client import Client

_COMPLETION_SECONDS = 0.5

Bootstrap = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Where the broker is; also allowed before the command."),
]
Json = Annotated[bool, typer.Option("--json", metavar="", help="Print JSON for machines.")]


def open_client(context: typer.Context, bootstrap: str | None) -> Client:
    from posthouse.client import Client

    invocation = context.find_object(Invocation) or Invocation()
    return Client(bootstrap or invocation.bootstrap)


def complete_topic(ctx: typer.Context, incomplete: str) -> list[str]:
    return _completed(ctx, incomplete, lambda client: [topic.name for topic in client.topics()])


def complete_group(ctx: typer.Context, incomplete: str) -> list[str]:
    return _completed(ctx, incomplete, lambda client: client.group_names())


def _completed(ctx: typer.Context, incomplete: str, names: Callable[[Client], list[str]]) -> list[str]:
    """Names for the shell. It must never fail or wait long: the user only pressed a key."""
    from posthouse.client import Client, ClientError

    where = ctx.params.get("bootstrap") or ctx.find_root().params.get("bootstrap") or DEFAULT_BOOTSTRAP
    try:
        with Client(where, timeout=_COMPLETION_SECONDS) as client:
            return [name for name in names(client) if name.startswith(incomplete)]
    except ClientError:
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
