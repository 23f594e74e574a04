"""`posthouse user …`: manage users."""

from pathlib import Path
from typing import Annotated

import typer

from posthouse.cli import access_keys
from posthouse.cli.options import Bootstrap, Json, open_client
from posthouse.cli.output import print_json, print_table, say

app = typer.Typer(
    name="user",
    help="Create, list and delete users, and change their passwords.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

app.add_typer(access_keys.app)

NewName = Annotated[str, typer.Argument(metavar="USER", help="Name of the new user.")]
Name = Annotated[str, typer.Argument(metavar="USER", help="Name of the user.")]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="File with the user's password in its first line; - is standard input. By default the password "
        "is typed, or read from standard input if that is not a terminal.",
    ),
]
Iterations = Annotated[
    int,
    typer.Option(
        min=4096,
        max=100_000,
        metavar="N",
        help="SCRAM iterations; more make the stored verifier harder to attack.",
    ),
]


@app.command(
    epilog="`posthouse user create alice`\n\n`posthouse user create billing --password-file billing.password`"
)
def create(
    context: typer.Context,
    user: NewName,
    password_file: PasswordFile = None,
    iterations: Iterations = 16_384,
    json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Create a user.

    The password is salted here and does not leave this machine. A new user may do nothing yet: see
    `posthouse acl allow`.
    """
    from posthouse.cli.passwords import new_password

    with open_client(context, bootstrap) as client:
        client.create_user(user, new_password(user, password_file), iterations=iterations)
    if json:
        print_json({"user": user, "created": True})
    else:
        say(f"created user {user!r}; say what it may do with 'posthouse acl allow {user} …'")


@app.command("list", epilog="`posthouse user list`")
def list_users(context: typer.Context, json: Json = False, bootstrap: Bootstrap = None) -> None:
    """List the users and their login mechanisms."""
    with open_client(context, bootstrap) as client:
        users = client.users()
    if json:
        print_json([{"user": each.name, "iterations": dict(each.iterations)} for each in users])
    elif users:
        rows = [
            (each.name, ", ".join(sorted(each.iterations)), max(each.iterations.values(), default=0))
            for each in users
        ]
        print_table(("user", "logs in with", "iterations"), rows, right=("iterations",))
    else:
        say("there are no users yet; create one with 'posthouse user create'")


@app.command(epilog="`posthouse user passwd alice`")
def passwd(
    context: typer.Context,
    user: Name,
    password_file: PasswordFile = None,
    iterations: Iterations = 16_384,
    json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Change the password of a user, and close the connections of that user."""
    from posthouse.cli.passwords import new_password

    with open_client(context, bootstrap) as client:
        client.change_password(user, new_password(user, password_file), iterations=iterations)
    if json:
        print_json({"user": user, "changed": True})
    else:
        say(f"user {user!r} has another password now")


@app.command(epilog="`posthouse user delete alice`")
def delete(context: typer.Context, user: Name, json: Json = False, bootstrap: Bootstrap = None) -> None:
    """Delete a user, and close their connections. Remove permissions with `posthouse acl remove USER`."""
    with open_client(context, bootstrap) as client:
        client.delete_user(user)
    if json:
        print_json({"user": user, "deleted": True})
    else:
        say(f"deleted user {user!r}; 'posthouse acl remove {user}' removes what it was permitted")
