"""`posthouse transaction …`: list open transactions, abort one that hangs, and decide two-phase commits."""

from typing import Annotated, Any

import typer

from posthouse.cli.durations import shown_duration
from posthouse.cli.options import Admin, Json, open_admin
from posthouse.cli.output import print_json, print_table, say

app = typer.Typer(
    name="transaction",
    help="List open transactions, abort one that hangs, and decide two-phase commits.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

_COLUMNS = ("transactional id", "state", "open for", "timeout", "producer", "owner", "partitions")
_SHOWN = 4

Id = Annotated[str, typer.Argument(metavar="ID", help="Transactional id, as 'transaction list' shows it.")]
All = Annotated[
    bool, typer.Option("--all", metavar="", help="Also transactional ids that have no open transaction.")
]


Producer = Annotated[
    str | None,
    typer.Option(
        metavar="ID/EPOCH",
        help="Only if the open transaction is that of this producer, as 'transaction list' shows it.",
    ),
]


@app.command("list", epilog="`posthouse transaction list`")
def list_transactions(
    context: typer.Context, all: All = False, json: Json = False, admin: Admin = None
) -> None:
    """List the open transactions. Consumers that read committed records wait for their end.

    One that is prepared waits for its owner, who takes part in a two-phase commit.
    """
    with open_admin(context, admin) as client:
        found = list(client.items("/v1/transactions", all=all or None))
    if json:
        print_json(found)
    elif found:
        print_table(_COLUMNS, map(_row, found), right=("open for", "timeout"))
    else:
        say("no transaction is open")


@app.command(epilog="`posthouse transaction abort billing-7`")
def abort(
    context: typer.Context, id: Id, producer: Producer = None, json: Json = False, admin: Admin = None
) -> None:
    """Abort the open transaction of a transactional id, and fence its producer.

    Of a two-phase commit, make sure first that its owner has not committed the other part.
    """
    aborted = _decide(context, "abort", id, producer, admin)
    if json:
        print_json(aborted)
    else:
        say(f"aborted the transaction of {id!r}")


@app.command(epilog="`posthouse transaction commit transfers-1 --producer 4711/12`")
def commit(
    context: typer.Context, id: Id, producer: Producer = None, json: Json = False, admin: Admin = None
) -> None:
    """Commit the transaction of a two-phase commit, instead of its owner.

    Make sure first that the owner has committed the other part: its database has the producer's id and epoch.
    """
    committed = _decide(context, "commit", id, producer, admin)
    if json:
        print_json(committed)
    else:
        say(f"committed the transaction of {id!r}")


def _decide(context: typer.Context, decision: str, id: str, producer: str | None, admin: str | None) -> Any:
    from posthouse.client.admin_client import part

    number, slash, epoch = (producer or "").partition("/")
    if producer is not None and not (slash and number.isascii() and number.isdigit() and epoch.isdigit()):
        raise typer.BadParameter(
            f"{producer!r} is no producer; write ID/EPOCH, as in 4711/12",
            ctx=context,
            param_hint="--producer",
        )
    with open_admin(context, admin) as client:
        return client.post(
            f"/v1/transactions/{part(id)}/{decision}",
            producer_id=number or None,
            producer_epoch=epoch or None,
        )


def _row(transaction: dict[str, Any]) -> tuple[object, ...]:
    age = transaction["age_ms"]
    return (
        transaction["id"],
        transaction["state"],
        "-" if age is None else shown_duration(age),
        "none" if transaction["timeout_ms"] is None else shown_duration(transaction["timeout_ms"]),
        f"{transaction['producer_id']}/{transaction['producer_epoch']}",
        transaction["owner"] or "-",
        _partitions(transaction),
    )


def _partitions(transaction: dict[str, Any]) -> str:
    shown = [f"{each['topic']}:{each['partition']}" for each in transaction["partitions"][:_SHOWN]]
    more = transaction["partitions_total"] - len(shown)
    return (" ".join(shown) + (f" and {more} more" if more > 0 else "")).strip() or "-"
