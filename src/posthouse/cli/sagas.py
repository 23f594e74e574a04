"""`posthouse saga …`: look at sagas, as their runners have noted them."""

from typing import Annotated, Any

import typer

from posthouse.cli.durations import shown_duration
from posthouse.cli.options import Admin, Json, none_yet, open_admin
from posthouse.cli.output import print_json, print_table, say

app = typer.Typer(
    name="saga",
    help="Look at sagas: steps of several services, and what takes them back.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

_KINDS = ("saga", "running", "waiting", "compensating", "completed", "compensated")
_COLUMNS = ("id", "status", "step", "attempt", "took", "error")

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the saga.")]
SomeName = Annotated[
    str | None, typer.Argument(metavar="[NAME]", help="Only sagas of this name, one by one.")
]
Id = Annotated[str, typer.Argument(metavar="ID", help="Id that it was started with.")]
Status = Annotated[
    str | None,
    typer.Option(
        "--status",
        metavar="STATUS",
        help="With NAME: only those that are running, waiting, compensating, completed or compensated.",
    ),
]


@app.command("list", epilog="`posthouse saga list`\n\n`posthouse saga list order --status compensating`")
def list_sagas(
    context: typer.Context,
    name: SomeName = None,
    status: Status = None,
    json: Json = False,
    admin: Admin = None,
) -> None:
    """List sagas by name, with how many there are, or those of one name."""
    from posthouse.client.admin_client import part

    if status is not None and name is None:
        raise typer.BadParameter("give the name of a saga, too", param_hint="--status")
    with open_admin(context, admin) as client:
        if name is None:
            found = list(client.items("/v1/sagas"))
        else:
            found = list(client.items(f"/v1/sagas/{part(name)}", status=status))
    if json:
        print_json(found)
    elif not found:
        say(none_yet(context, "sagas"))
    elif name is None:
        rows = [(each["name"], *(each["sagas"].get(kind, 0) for kind in _KINDS[1:])) for each in found]
        print_table(_KINDS, rows, right=_KINDS[1:])
    else:
        print_table(_COLUMNS, map(_row, found), right=("attempt",))


@app.command(epilog="`posthouse saga show order order-7`")
def show(context: typer.Context, name: Name, id: Id, admin: Admin = None) -> None:
    """Show a saga, with its input and the results of its steps, as JSON."""
    from posthouse.client.admin_client import part

    with open_admin(context, admin) as client:
        print_json(client.get(f"/v1/sagas/{part(name)}/{part(id)}"))


def _row(found: dict[str, Any]) -> tuple[object, ...]:
    return (
        found["id"],
        found["status"],
        found["step"] or "-",
        found["attempt"],
        shown_duration(found["changed_ms"] - found["started_ms"]),
        found["error"] or "",
    )
