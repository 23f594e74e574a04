"""`posthouse transaction …`: list open transactions, and abort one that hangs."""

from typing import Annotated, Any

import typer

from posthouse.cli.durations import shown_duration
from posthouse.cli.options import Admin, Json, open_admin
from posthouse.cli.output import print_json, print_table, say

app = typer.Typer(
    name="transaction",
    help="List open transactions, and abort one that hangs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

_COLUMNS = ("transactional id", "state", "open for", "timeout", "producer", "partitions")
_SHOWN = 4

Id = Annotated[str, typer.Argument(metavar="ID", help="Transactional id, as 'transaction list' shows it.")]
All = Annotated[
    bool, typer.Option("--all", metavar="", help="Also transactional ids that have no open transaction.")
]


@app.command("list", epilog="`posthouse transaction list`")
def list_transactions(
    context: typer.Context, all: All = False, json: Json = False, admin: Admin = None
) -> None:
    """List the open transactions. Consumers that read committed records wait for their end."""
    with open_admin(context, admin) as client:
        found = list(client.items("/v1/transactions", all=all or None))
    if json:
        print_json(found)
    elif found:
        print_table(_COLUMNS, map(_row, found), right=("open for", "timeout"))
    else:
        say("no transaction is open")


@app.command(epilog="`posthouse transaction abort billing-7`")
def abort(context: typer.Context, id: Id, json: Json = False, admin: Admin = None) -> None:
    """Abort the open transaction of a transactional id, and fence its producer."""
    from posthouse.client.admin_client import part

    with open_admin(context, admin) as client:
        aborted = client.post(f"/v1/transactions/{part(id)}/abort")
    if json:
        print_json(aborted)
    else:
        say(f"aborted the transaction of {id!r}")


def _row(transaction: dict[str, Any]) -> tuple[object, ...]:
    age = transaction["age_ms"]
    return (
        transaction["id"],
        transaction["state"],
        "-" if age is None else shown_duration(age),
        shown_duration(transaction["timeout_ms"]),
        f"{transaction['producer_id']}/{transaction['producer_epoch']}",
        _partitions(transaction),
    )


def _partitions(transaction: dict[str, Any]) -> str:
    shown = [f"{each['topic']}:{each['partition']}" for each in transaction["partitions"][:_SHOWN]]
    more = transaction["partitions_total"] - len(shown)
    return (" ".join(shown) + (f" and {more} more" if more > 0 else "")).strip() or "-"
