"""`posthouse connection …`: list the connections of clients, and close one."""

import time
from typing import Annotated, Any

import typer

from posthouse.cli.durations import shown_duration
from posthouse.cli.options import Admin, Json, open_admin
from posthouse.cli.output import or_dash, print_json, print_table, say
from posthouse.cli.sizes import rounded_size

app = typer.Typer(
    name="connection",
    help="List the connections of clients of all protocols, and close one.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

_COLUMNS = ("peer", "protocol", "user", "client", "open for", "received", "sent", "held", "channels", "")
_NUMBERS = ("open for", "received", "sent", "held", "channels")

Peer = Annotated[
    str, typer.Argument(metavar="PEER", help="Address and port of the client, as 'connection list' shows it.")
]
Search = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Only peers and listeners that contain this.")
]


@app.command("list", epilog="`posthouse connection list`")
def list_connections(
    context: typer.Context, search: Search = None, json: Json = False, admin: Admin = None
) -> None:
    """List the connections: who is connected, for how long, and how many bytes were exchanged."""
    with open_admin(context, admin) as client:
        found = list(client.items("/v1/connections", search=search))
    if json:
        print_json(found)
    else:
        now = time.time_ns() // 1_000_000
        print_table(_COLUMNS, [_row(each, now) for each in found], right=_NUMBERS)


@app.command(epilog="`posthouse connection close 10.0.0.7:51234`")
def close(context: typer.Context, peer: Peer, json: Json = False, admin: Admin = None) -> None:
    """Close a connection. Its client may connect again."""
    from posthouse.client.admin_client import part

    with open_admin(context, admin) as client:
        client.delete(f"/v1/connections/{part(peer)}")
    if json:
        print_json({"peer": peer, "closed": True})
    else:
        say(f"closed the connection from {peer}")


def _row(connection: dict[str, Any], now_ms: int) -> tuple[object, ...]:
    return (
        connection["peer"],
        connection["protocol"] + ("+tls" if connection["tls"] else ""),
        or_dash(connection["user"]),
        or_dash(connection["client"]),
        shown_duration(max(now_ms - connection["since"], 0)),
        rounded_size(connection["received_bytes"]),
        rounded_size(connection["sent_bytes"]),
        rounded_size(connection["held_bytes"]),
        connection["channels_total"],
        "paused" if connection["paused"] else "",
    )
