"""`posthouse exchange list` and `posthouse binding list`: how AMQP messages come to their queues."""

from typing import Annotated

import typer

from posthouse.cli.options import Admin, Json, SomeNamespace, open_admin
from posthouse.cli.output import print_json, print_table, say

exchanges = typer.Typer(
    name="exchange",
    help="List the exchanges, which AMQP clients publish to.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
bindings = typer.Typer(
    name="binding",
    help="List the bindings, which say which queues an exchange passes messages to.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

Search = Annotated[str | None, typer.Option(metavar="TEXT", help="Only names that contain this.")]
Source = Annotated[str | None, typer.Option("--from", metavar="EXCHANGE", help="Only from this exchange.")]
Destination = Annotated[
    str | None, typer.Option("--to", metavar="NAME", help="Only to this queue or exchange.")
]


@exchanges.command("list", epilog="`posthouse exchange list`")
def list_exchanges(
    context: typer.Context,
    namespace: SomeNamespace = None,
    search: Search = None,
    json: Json = False,
    admin: Admin = None,
) -> None:
    """List the exchanges."""
    with open_admin(context, admin) as client:
        found = list(client.items("/v1/exchanges", namespace=namespace, search=search))
    if json:
        print_json(found)
        return
    rows = [
        (
            each["name"] or "(default)",
            each["namespace"],
            each["kind"],
            "yes" if each["durable"] else "no",
            each["bindings"],
            each["alternate"] or "-",
        )
        for each in found
    ]
    columns = ("exchange", "namespace", "kind", "durable", "bindings", "alternate")
    print_table(columns, rows, right=("bindings",))


@bindings.command("list", epilog="`posthouse binding list --to mails`")
def list_bindings(
    context: typer.Context,
    source: Source = None,
    destination: Destination = None,
    namespace: SomeNamespace = None,
    search: Search = None,
    json: Json = False,
    admin: Admin = None,
) -> None:
    """List the bindings. Those of the default exchange, which knows every queue by its name, are left out."""
    with open_admin(context, admin) as client:
        found = list(
            client.items(
                "/v1/bindings", namespace=namespace, search=search, source=source, destination=destination
            )
        )
    if json:
        print_json(found)
    elif found:
        rows = [
            (
                each["source"],
                each["namespace"],
                each["key"],
                f"exchange {each['destination']}" if each["to_exchange"] else each["destination"],
            )
            for each in found
        ]
        print_table(("from", "namespace", "key", "to"), rows)
    else:
        say("there are no such bindings")
