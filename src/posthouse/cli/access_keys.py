"""`posthouse user access-key …`: keys with which RocketMQ's clients sign their requests."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from posthouse.cli.options import Admin, Json, open_admin
from posthouse.cli.output import print_json, print_table, say

app = typer.Typer(
    name="access-key",
    help="Add, list and remove access keys, with which RocketMQ clients log in.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

Name = Annotated[str, typer.Argument(metavar="USER", help="Name of the user.")]
Key = Annotated[str, typer.Argument(metavar="KEY", help="The access key.")]
NewKey = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="An access key that clients have already.")
]
SecretFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="File with the secret that clients have already in its first line; - is standard input. By "
        "default the broker makes one.",
    ),
]


@app.command(
    epilog="`posthouse user access-key add alice`\n\n"
    "`posthouse user access-key add alice --key RocketMQ --secret-file rocketmq.secret`"
)
def add(
    context: typer.Context,
    user: Name,
    key: NewKey = None,
    secret_file: SecretFile = None,
    json: Json = False,
    admin: Admin = None,
) -> None:
    """Add an access key to a user, and print it with its secret.

    The secret is not shown again. A user may have ten access keys: add a new one, let clients use it, and
    remove the old one.
    """
    from posthouse.cli.passwords import given_secret
    from posthouse.client.admin_client import part

    body = {"access_key": key, "secret": None if secret_file is None else given_secret(secret_file)}
    with open_admin(context, admin) as client:
        made = client.post(f"/v1/users/{part(user)}/access-keys", body)
    if json:
        print_json({"user": user, "access_key": made["access_key"], "secret": made["secret"]})
    else:
        print_table(("access key", "secret"), [(made["access_key"], made["secret"])])
        say(f"added an access key to user {user!r}; its secret is not shown again")


@app.command("list", epilog="`posthouse user access-key list alice`")
def list_keys(context: typer.Context, user: Name, json: Json = False, admin: Admin = None) -> None:
    """List the access keys of a user. Secrets are not shown."""
    from posthouse.client.admin_client import part

    with open_admin(context, admin) as client:
        found = client.get(f"/v1/users/{part(user)}/access-keys")["items"]
    if json:
        print_json([{"access_key": each["access_key"], "created": each["created"]} for each in found])
    elif found:
        print_table(
            ("access key", "created"), [(each["access_key"], _shown(each["created"])) for each in found]
        )
    else:
        say(f"user {user!r} has no access keys; add one with 'posthouse user access-key add {user}'")


@app.command(epilog="`posthouse user access-key remove alice PHQ2ZJ7K3M5N4XWV`")
def remove(context: typer.Context, user: Name, key: Key, json: Json = False, admin: Admin = None) -> None:
    """Remove an access key, and close the connections that use it."""
    from posthouse.client.admin_client import part

    with open_admin(context, admin) as client:
        client.delete(f"/v1/users/{part(user)}/access-keys/{part(key)}")
    if json:
        print_json({"user": user, "access_key": key, "removed": True})
    else:
        say(f"removed the access key {key} of user {user!r}")


def _shown(created_ms: int) -> str:
    return datetime.fromtimestamp(created_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
