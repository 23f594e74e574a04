"""`posthouse broker …`: the brokers that share a storage."""

from typing import Any

import typer

from posthouse.cli.durations import shown_duration
from posthouse.cli.options import Admin, Json, open_admin
from posthouse.cli.output import or_dash, print_json, print_table, say

app = typer.Typer(
    name="broker",
    help="List the brokers that share a storage, and which of them is the coordinator.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

NOT_CURRENT = "the broker that was asked does not reach the database: this is what it knew last"

_COLUMNS = ("id", "name", "role", "rack", "kafka", "amqp", "version", "up for")


@app.callback()
def _group() -> None:
    """Makes `list` a command of its own, although it is the only one."""


@app.command("list", epilog="`posthouse broker list`")
def list_brokers(context: typer.Context, json: Json = False, admin: Admin = None) -> None:
    """List the brokers that were seen in the last seconds. The one that is asked answers, also if there is
    no coordinator."""
    with open_admin(context, admin) as client:
        found = client.get("/v1/brokers")
    if json:
        print_json(found)
        return
    print_table(_COLUMNS, [_row(each) for each in found["brokers"]], right=("id", "up for"))
    if not found["current"]:
        say(NOT_CURRENT)
    if found["epoch"] is not None:
        say(f"the lease has epoch {found['epoch']} and lasts {found['lease_seconds']:.1f} s unless renewed")


def _row(broker: dict[str, Any]) -> tuple[object, ...]:
    addresses = broker["addresses"]
    return (
        broker["id"],
        or_dash(broker["name"]),
        broker["role"],
        or_dash(broker["rack"]),
        or_dash(addresses.get("kafka") or addresses.get("kafka_tls")),
        or_dash(addresses.get("amqp") or addresses.get("amqp_tls")),
        broker["version"],
        or_dash(None if broker["uptime"] is None else shown_duration(int(broker["uptime"] * 1000))),
    )
