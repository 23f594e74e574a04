"""`posthouse quota …`: rate limits of users and clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from posthouse.cli.options import Bootstrap, Json, open_client
from posthouse.cli.output import print_json, print_table, say
from posthouse.cli.sizes import parse_percentage, parse_size, shown_size

if TYPE_CHECKING:
    from posthouse.client.quotas import QuotaEntity, QuotaName, Who

app = typer.Typer(
    name="quota",
    help="Manage quotas: rate limits of users and clients.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

_COLUMNS = ("user", "client", "write", "read", "time")

User = Annotated[str | None, typer.Option("--user", metavar="USER", help="For this user.")]
Client = Annotated[
    str | None, typer.Option("--client", metavar="ID", help="For clients with this client id.")
]
DefaultUser = Annotated[
    bool, typer.Option("--default-user", metavar="", help="For each user without a quota of its own.")
]
DefaultClient = Annotated[
    bool, typer.Option("--default-client", metavar="", help="For each client id without a quota of its own.")
]
WriteRate = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Bytes produced per second: 10MB, 512KiB.")
]
ReadRate = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Bytes consumed per second: 10MB, 512KiB.")
]
Time = Annotated[
    str | None, typer.Option(metavar="PERCENT", help="Share of the broker's CPU time, of 100% in all: 50%.")
]
NoWriteRate = Annotated[bool, typer.Option("--write-rate", metavar="", help="Remove only this limit.")]
NoReadRate = Annotated[bool, typer.Option("--read-rate", metavar="", help="Remove only this limit.")]
NoTime = Annotated[bool, typer.Option("--time", metavar="", help="Remove only this limit.")]


@app.command(
    "set",
    epilog="`posthouse quota set --user alice --write-rate 10MB --read-rate 20MB`\n\n"
    "`posthouse quota set --default-user --time 25%`\n\n"
    "`posthouse quota set --user alice --client reports --read-rate 1MB`",
)
def set_quota(
    context: typer.Context,
    user: User = None,
    client: Client = None,
    default_user: DefaultUser = False,
    default_client: DefaultClient = False,
    write_rate: WriteRate = None,
    read_rate: ReadRate = None,
    time: Time = None,
    json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Limit a user, a client id, or one client id of one user. Clients above it are throttled."""
    from posthouse.client.quotas import QuotaName

    entity = _entity(context, user, client, default_user, default_client)
    changes: dict[QuotaName, float | None] = {}
    for quota, text, parse, flag in (
        (QuotaName.WRITE, write_rate, parse_size, "--write-rate"),
        (QuotaName.READ, read_rate, parse_size, "--read-rate"),
        (QuotaName.TIME, time, parse_percentage, "--time"),
    ):
        if text is not None:
            changes[quota] = _parsed(text, parse, flag)
    if not changes:
        raise typer.BadParameter(
            "nothing to set was given", ctx=context, param_hint="--write-rate, --read-rate or --time"
        )
    _change(context, bootstrap, entity, changes, json, "set the quota of")


@app.command("list", epilog="`posthouse quota list`")
def list_quotas(context: typer.Context, json: Json = False, bootstrap: Bootstrap = None) -> None:
    """List the quotas."""
    with open_client(context, bootstrap) as client:
        quotas = client.quotas()
    if json:
        print_json([_described(entity, rates) for entity, rates in quotas.items()])
    elif quotas:
        print_table(_COLUMNS, sorted(_row(*each) for each in quotas.items()), right=_COLUMNS[2:])
    else:
        say("there are no quotas; set one with 'posthouse quota set'")


@app.command(epilog="`posthouse quota remove --user alice`\n\n`posthouse quota remove --default-user --time`")
def remove(
    context: typer.Context,
    user: User = None,
    client: Client = None,
    default_user: DefaultUser = False,
    default_client: DefaultClient = False,
    write_rate: NoWriteRate = False,
    read_rate: NoReadRate = False,
    time: NoTime = False,
    json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Remove all limits of a quota, or only the named ones."""
    from posthouse.client.quotas import QuotaName

    entity = _entity(context, user, client, default_user, default_client)
    named = {QuotaName.WRITE: write_rate, QuotaName.READ: read_rate, QuotaName.TIME: time}
    removed = [quota for quota, is_named in named.items() if is_named] or list(named)
    _change(context, bootstrap, entity, dict.fromkeys(removed), json, "removed limits of")


def _change(
    context: typer.Context,
    bootstrap: str | None,
    entity: QuotaEntity,
    changes: dict[QuotaName, float | None],
    json: bool,
    done: str,
) -> None:
    with open_client(context, bootstrap) as client:
        client.change_quotas(entity, changes)
        rates = client.quotas().get(entity, {})
    if json:
        print_json(_described(entity, rates))
    else:
        say(f"{done} {entity}")


def _entity(
    context: typer.Context, user: str | None, client: str | None, default_user: bool, default_client: bool
) -> QuotaEntity:
    from posthouse.client.quotas import DEFAULT, QuotaEntity

    for name, default, flags in (
        (user, default_user, "--user and --default-user"),
        (client, default_client, "--client and --default-client"),
    ):
        if name is not None and default:
            raise typer.BadParameter("give one of them", ctx=context, param_hint=flags)
    entity = QuotaEntity(user=DEFAULT if default_user else user, client=DEFAULT if default_client else client)
    if entity == QuotaEntity():
        raise typer.BadParameter(
            "whose quota is missing",
            ctx=context,
            param_hint="--user, --client, --default-user or --default-client",
        )
    return entity


def _parsed(text: str, parse: Callable[[str], float], flag: str) -> float:
    try:
        return parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=flag) from None


def _row(entity: QuotaEntity, rates: dict[QuotaName, float]) -> tuple[str, ...]:
    from posthouse.client.quotas import QuotaName

    time = rates.get(QuotaName.TIME)
    sizes = [rates.get(quota) for quota in (QuotaName.WRITE, QuotaName.READ)]
    return (
        _who(entity.user),
        _who(entity.client),
        *("-" if size is None else f"{shown_size(size)}/s" for size in sizes),
        "-" if time is None else f"{time:g}%",
    )


def _who(who: Who) -> str:
    from posthouse.client.quotas import DEFAULT

    return "-" if who is None else "(each)" if who is DEFAULT else str(who)


def _described(entity: QuotaEntity, rates: dict[QuotaName, float]) -> dict[str, Any]:
    from posthouse.client.quotas import DEFAULT, QuotaName

    return {
        "user": None if entity.user is DEFAULT else entity.user,
        "client": None if entity.client is DEFAULT else entity.client,
        "default_user": entity.user is DEFAULT,
        "default_client": entity.client is DEFAULT,
        "write_rate": rates.get(QuotaName.WRITE),
        "read_rate": rates.get(QuotaName.READ),
        "time": rates.get(QuotaName.TIME),
    }
