"""`posthouse config describe`: the settings that a broker runs with."""

from typing import Annotated

import typer

from posthouse.cli.options import Admin, Json, open_admin
from posthouse.cli.output import or_dash, print_json, print_table

app = typer.Typer(
    name="config",
    help="Show the settings of a running broker.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

Changed = Annotated[
    bool, typer.Option("--changed", metavar="", help="Only settings that were given or changed.")
]
Search = Annotated[str | None, typer.Option(metavar="TEXT", help="Only names that contain this.")]


@app.command(epilog="`posthouse config describe --changed`")
def describe(
    context: typer.Context,
    changed: Changed = False,
    search: Search = None,
    json: Json = False,
    admin: Admin = None,
) -> None:
    """Show the settings that the broker runs with, where they come from, and what they mean.

    A setting comes from a flag, an environment variable, a file or its default, or was changed at run time.
    Secrets are hidden.
    """
    with open_admin(context, admin) as client:
        found = client.get("/v1/settings")["settings"]
    shown = [
        each
        for each in found
        if (search or "") in each["name"] and not (changed and each["source"] == "default")
    ]
    if json:
        print_json(shown)
    else:
        rows = [(each["name"], or_dash(each["value"]), each["source"], each["meaning"]) for each in shown]
        print_table(("setting", "value", "set by", "meaning"), rows)
