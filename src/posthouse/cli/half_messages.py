"""`posthouse half-message …`: list what producers have prepared and not decided, and decide it."""

from typing import Annotated, Any

import typer

from posthouse.cli.durations import shown_duration
from posthouse.cli.options import Admin, Json, open_admin
from posthouse.cli.output import print_json, print_table, say

app = typer.Typer(
    name="half-message",
    help="List half messages that no producer has decided, and decide them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

_COLUMNS = ("id", "group", "name", "topic", "age", "checks")

Id = Annotated[int, typer.Argument(metavar="ID", help="Number, as 'half-message list' shows it.", min=0)]
Group = Annotated[
    str | None, typer.Option("--group", metavar="GROUP", help="Only those of this group of producers.")
]
Topic = Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="Only those for this topic.")]


@app.command("list", epilog="`posthouse half-message list --group billing`")
def list_half_messages(
    context: typer.Context, group: Group = None, topic: Topic = None, json: Json = False, admin: Admin = None
) -> None:
    """List the half messages that nobody has decided, the oldest first."""
    with open_admin(context, admin) as client:
        found = list(client.items("/v1/half-messages", group=group, topic=topic))
    if json:
        print_json(found)
    elif found:
        print_table(_COLUMNS, map(_row, found), right=("id", "age", "checks"))
    else:
        say("no half message is undecided")


@app.command(epilog="`posthouse half-message show 4711`")
def show(context: typer.Context, id: Id, admin: Admin = None) -> None:
    """Show a half message that nobody has decided, with its value, as JSON."""
    with open_admin(context, admin) as client:
        print_json(client.get(f"/v1/half-messages/{id}"))


@app.command(epilog="`posthouse half-message commit 4711`")
def commit(context: typer.Context, id: Id, json: Json = False, admin: Admin = None) -> None:
    """Commit a half message: it becomes visible."""
    with open_admin(context, admin) as client:
        decided = client.post(f"/v1/half-messages/{id}/commit")
    if json:
        print_json(decided)
    else:
        say(f"committed half message {id}" + ("" if decided["routed"] else "; no queue takes it"))


@app.command(epilog="`posthouse half-message rollback 4711`")
def rollback(context: typer.Context, id: Id, json: Json = False, admin: Admin = None) -> None:
    """Roll a half message back: it is never visible."""
    with open_admin(context, admin) as client:
        decided = client.post(f"/v1/half-messages/{id}/rollback")
    if json:
        print_json(decided)
    else:
        say(f"rolled back half message {id}")


def _row(found: dict[str, Any]) -> tuple[object, ...]:
    return (
        found["id"],
        found["group"],
        found["name"] or "-",
        " ".join(found["topics"]),
        shown_duration(found["age_ms"]),
        found["checks"],
    )
