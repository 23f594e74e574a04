"""`posthouse cluster …`: which broker holds which scope, and how to move scopes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from posthouse.cli.brokers import NOT_CURRENT
from posthouse.cli.options import Admin, Json, open_admin
from posthouse.cli.output import or_dash, print_json, print_table, say
from posthouse.cli.scope_ranges import shortened

if TYPE_CHECKING:
    from posthouse.client.admin_client import AdminClient

app = typer.Typer(
    name="cluster",
    help="Show which broker holds which scope, and move scopes, before a broker is stopped for example. "
    "A scope is a part of what one broker does for all: `coordinator` has settings of topics, users and "
    "permissions; consumer groups are in `groups/00` to `groups/63`, transactional ids in `transactions/00` "
    "to `transactions/63` and namespaces with their queues in `namespaces/00` to `namespaces/15`, by the "
    "hash of their names; the background work on logs is in `housekeeping/00` to `housekeeping/15`.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

_COLUMNS = ("id", "name", "state", "scopes", "holds")
_LOOK_SECONDS = 0.5

BrokerName = Annotated[
    str, typer.Argument(metavar="BROKER", help="Name of the broker, as 'cluster status' shows it.")
]
SomeBroker = Annotated[
    str | None,
    typer.Argument(metavar="BROKER", help="Name of the broker; without it the brokers choose again."),
]
ScopeName = Annotated[
    str,
    typer.Argument(
        metavar="SCOPE",
        help="The scope: coordinator, or one of those that 'cluster status' shows, such as groups/07.",
    ),
]
Wait = Annotated[
    float,
    typer.Option(
        "--wait", metavar="SECONDS", min=0, help="How long to wait until it holds no scope; 0: not at all."
    ),
]


@app.command(epilog="`posthouse cluster status`")
def status(context: typer.Context, json: Json = False, admin: Admin = None) -> None:
    """Show the live brokers, the scopes that they hold, and what operators have changed. The broker that is
    asked answers with what it knows, also if there is no coordinator."""
    with open_admin(context, admin) as client:
        found = client.get("/v1/cluster")
    if json:
        print_json(found)
        return
    print_table(_COLUMNS, [_row(each, found["scopes"]) for each in found["brokers"]], right=("id", "scopes"))
    if not found["scopes"]:
        say("this broker does not share its storage, and holds all scopes itself")
    if not found["current"]:
        say(NOT_CURRENT)
    free = [each["name"] for each in found["scopes"] if each["holder"] is None]
    if free:
        say(f"without a broker: {shortened(free)}")
    names = {each["id"]: each["name"] for each in found["brokers"]}
    for scope in found["scopes"]:
        if scope["wanted"] is not None:
            where = names.get(scope["wanted"], f"the broker with id {scope['wanted']}, which is not alive")
            say(f"{scope['name']} was moved to {where}")


@app.command(epilog="`posthouse cluster drain broker-2 && systemctl restart posthouse`")
def drain(
    context: typer.Context, broker: BrokerName, wait: Wait = 300.0, json: Json = False, admin: Admin = None
) -> None:
    """Let a broker hand over its scopes, one after the other. It goes on serving logs, and gets no scopes,
    also after a restart, until 'cluster undrain'."""
    from posthouse.client.admin_client import part

    with open_admin(context, admin) as client:
        client.post(f"/v1/cluster/brokers/{part(broker)}/drain")
        left = _drained(client, broker, wait) if wait else None
    if left:
        say(f"broker {broker} is draining, and still holds {left} scopes after {wait:g} s")
    elif not json:
        say(f"broker {broker} is draining" if left is None else f"broker {broker} holds no scopes any more")
    if json:
        print_json({"broker": broker, "draining": True, "scopes": left})
    if left:
        raise typer.Exit(1)


@app.command(epilog="`posthouse cluster undrain broker-2`")
def undrain(context: typer.Context, broker: BrokerName, json: Json = False, admin: Admin = None) -> None:
    """Let a broker hold scopes again. It gets its share from the others, one after the other."""
    from posthouse.client.admin_client import part

    with open_admin(context, admin) as client:
        client.post(f"/v1/cluster/brokers/{part(broker)}/undrain")
    if json:
        print_json({"broker": broker, "draining": False})
    else:
        say(f"broker {broker} gets its share of the scopes again")


@app.command(epilog="`posthouse cluster move groups/07 broker-2`")
def move(
    context: typer.Context,
    scope: ScopeName,
    broker: SomeBroker = None,
    json: Json = False,
    admin: Admin = None,
) -> None:
    """Move a scope to a broker. It stays there while that broker lives; without BROKER the brokers choose
    again where it is."""
    from posthouse.client.admin_client import part

    with open_admin(context, admin) as client:
        client.post(f"/v1/cluster/scopes/{part(scope)}/move", {"broker": broker})
    if json:
        print_json({"scope": scope, "broker": broker})
    elif broker is None:
        say(f"the brokers choose which of them holds {scope}")
    else:
        say(f"{scope} moves to broker {broker}, and stays there")


def _drained(client: AdminClient, broker: str, seconds: float) -> int:
    """How many scopes the broker still holds, when it holds none or the time is over. If it was the
    coordinator, calls fail for a moment."""
    from posthouse.client.errors import BrokerSilent, BrokerUnreachable, CallRefused

    deadline = time.monotonic() + seconds
    left = 1
    while left and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        try:
            brokers = client.get("/v1/cluster")["brokers"]
        except (BrokerUnreachable, BrokerSilent):
            continue
        except CallRefused as error:
            if error.status != 503:
                raise
            continue
        left = sum(each["scopes"] for each in brokers if each["name"] == broker)
    return left


def _row(broker: dict[str, Any], scopes: Sequence[dict[str, Any]]) -> tuple[object, ...]:
    held = [each["name"] for each in scopes if each["holder"] == broker["id"]]
    return broker["id"], broker["name"], broker["state"], broker["scopes"], or_dash(shortened(held))
