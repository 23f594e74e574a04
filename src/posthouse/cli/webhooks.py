"""`posthouse webhook …`: messages of topics and queues, pushed to HTTP endpoints."""

from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from posthouse.cli.options import Admin, Json, complete_queue, complete_topic, open_admin
from posthouse.cli.output import or_dash, print_json, print_table, say

app = typer.Typer(
    name="webhook",
    help="Push the messages of topics and queues to HTTP endpoints.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

_COLUMNS = ("name", "source", "url", "state", "delivered", "failed", "dead", "lag")
_NUMBERS = ("delivered", "failed", "dead", "lag")


class Form(StrEnum):
    RAW = "raw"
    CLOUD_EVENTS = "cloudevents"
    BINARY = "cloudevents-binary"


Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the webhook.")]
Url = Annotated[str, typer.Option("--url", metavar="URL", help="Where requests are sent.")]
NewUrl = Annotated[str | None, typer.Option("--url", metavar="URL", help="Where requests are sent.")]
Topic = Annotated[
    str | None,
    typer.Option(metavar="TOPIC", help="Push its messages.", autocompletion=complete_topic),
]
Queue = Annotated[
    str | None,
    typer.Option(metavar="QUEUE", help="Push its messages.", autocompletion=complete_queue),
]
Namespace = Annotated[
    str, typer.Option("--namespace", "-N", metavar="NAME", help="Namespace (AMQP virtual host) of the queue.")
]
Filter = Annotated[
    str | None, typer.Option(metavar="SQL", help="Conditions on headers: \"region = 'eu' AND total > 3\".")
]
Rate = Annotated[str | None, typer.Option(metavar="RATE", help="Most messages: 100/s, 6000/m.")]
Concurrency = Annotated[
    int | None, typer.Option(metavar="N", min=1, max=256, help="Most requests at a time, by default 8.")
]
Batch = Annotated[
    int | None, typer.Option(metavar="N", min=1, max=1000, help="Most messages of one request, by default 1.")
]
Ordered = Annotated[
    bool, typer.Option("--ordered", metavar="", help="Push messages of one key one after the other.")
]
Timeout = Annotated[float | None, typer.Option(metavar="SECONDS", help="Of a whole request, by default 15.")]
Attempts = Annotated[
    int | None,
    typer.Option(metavar="N", help="After so many, by default 16, a message is a dead letter."),
]
Beginning = Annotated[
    bool, typer.Option("--from-beginning", metavar="", help="Push what the topic has already, too.")
]
SecretFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="File with a secret (whsec_…) in its first line; - is standard input. By default the broker "
        "makes one.",
    ),
]


@app.command(
    epilog="`posthouse webhook create shop --topic orders --url https://shop.example/hooks`\n\n"
    "`posthouse webhook create mail --queue mails --url https://mail.example/in --rate 100/s "
    "--concurrency 4`\n\n"
    "`posthouse webhook create eu --topic orders --url https://eu.example/ --filter \"region = 'eu'\" "
    "--ordered`"
)
def create(
    context: typer.Context,
    name: Name,
    url: Url,
    topic: Topic = None,
    queue: Queue = None,
    namespace: Namespace = "/",
    form: Annotated[Form, typer.Option(help="What a request looks like.")] = Form.RAW,
    filter: Filter = None,
    rate: Rate = None,
    concurrency: Concurrency = None,
    batch: Batch = None,
    ordered: Ordered = False,
    timeout: Timeout = None,
    max_attempts: Attempts = None,
    from_beginning: Beginning = False,
    secret_file: SecretFile = None,
    json: Json = False,
    admin: Admin = None,
) -> None:
    """Create a webhook, and print the secret that signs its requests.

    The secret is not shown again. Receivers check it with any library of Standard Webhooks.
    """
    body = {
        "name": name,
        "url": url,
        "topic": topic,
        "queue": queue,
        "namespace": namespace,
        "form": form.value,
        "ordered": ordered,
        "begin": "earliest" if from_beginning else "latest",
        "secret": _secret(secret_file),
        **_limits(filter, rate, concurrency, batch, timeout, max_attempts),
    }
    with open_admin(context, admin) as client:
        made = client.post("/v1/webhooks", body)
    _print_secret(made, json=json)
    say(f"created webhook {name!r}; its secret is not shown again")


@app.command(epilog="`posthouse webhook alter shop --url https://shop.example/v2/hooks --rate 50/s`")
def alter(
    context: typer.Context,
    name: Name,
    url: NewUrl = None,
    filter: Filter = None,
    rate: Rate = None,
    concurrency: Concurrency = None,
    batch: Batch = None,
    timeout: Timeout = None,
    max_attempts: Attempts = None,
    json: Json = False,
    admin: Admin = None,
) -> None:
    """Change a webhook. Its progress stays, and it is tried at once."""
    body = _limits(filter, rate, concurrency, batch, timeout, max_attempts)
    if url is not None:
        body["url"] = url
    with open_admin(context, admin) as client:
        changed = client.patch(_path(name), body)
    if json:
        print_json(changed)
    else:
        say(f"changed webhook {name!r}")


@app.command("list", epilog="`posthouse webhook list`")
def list_webhooks(context: typer.Context, json: Json = False, admin: Admin = None) -> None:
    """List webhooks, with what became of their requests."""
    with open_admin(context, admin) as client:
        found = list(client.items("/v1/webhooks"))
    if json:
        print_json(found)
    elif found:
        print_table(_COLUMNS, map(_row, found), right=_NUMBERS)
    else:
        say("there are no webhooks yet; create one with 'posthouse webhook create'")


@app.command(epilog="`posthouse webhook show shop`")
def show(context: typer.Context, name: Name, admin: Admin = None) -> None:
    """Show a webhook as JSON, with its last failure."""
    with open_admin(context, admin) as client:
        print_json(client.get(_path(name)))


@app.command(epilog='`posthouse webhook pause shop --reason "their database moves"`')
def pause(
    context: typer.Context,
    name: Name,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="For other operators.")] = None,
    json: Json = False,
    admin: Admin = None,
) -> None:
    """Pause a webhook: its messages wait."""
    with open_admin(context, admin) as client:
        client.post(f"{_path(name)}/pause", {} if reason is None else {"reason": reason})
    _done(name, "paused", json=json)


@app.command(epilog="`posthouse webhook resume shop`")
def resume(context: typer.Context, name: Name, json: Json = False, admin: Admin = None) -> None:
    """Resume a webhook: it is tried at once."""
    with open_admin(context, admin) as client:
        client.post(f"{_path(name)}/resume")
    _done(name, "resumed", json=json)


@app.command(epilog="`posthouse webhook rotate shop --valid 7d`")
def rotate(
    context: typer.Context,
    name: Name,
    valid: Annotated[
        str, typer.Option(metavar="TIME", help="How long requests are signed with the secret before, too.")
    ] = "1d",
    secret_file: SecretFile = None,
    json: Json = False,
    admin: Admin = None,
) -> None:
    """Give a webhook another secret, and print it.

    Receivers that take the new one before the time is over miss nothing.
    """
    from posthouse.cli.durations import parse_duration
    from posthouse.client.errors import BadArgument

    try:
        seconds = parse_duration(valid) // 1000
    except ValueError as error:
        raise BadArgument(str(error)) from None
    body = {"valid_seconds": seconds, "secret": _secret(secret_file)}
    with open_admin(context, admin) as client:
        made = client.post(f"{_path(name)}/rotate", body)
    _print_secret(made, json=json)
    say(f"rotated the secret of webhook {name!r}; the new one is not shown again")


@app.command(epilog="`posthouse webhook replay shop --since '2 hours ago'`")
def replay(
    context: typer.Context,
    name: Name,
    since: Annotated[str, typer.Option(metavar="TIME", help="earliest, a duration such as 2h, or a date.")],
    json: Json = False,
    admin: Admin = None,
) -> None:
    """Push again what was written to the topic since a time.

    Messages keep their ids: receivers that remember them drop what they had before.
    """
    with open_admin(context, admin) as client:
        done = client.post(f"{_path(name)}/replay", {"since": _since(since)})
    if json:
        print_json(done)
    else:
        print_table(
            ("topic", "partition", "offset"),
            [(done["topic"], each["partition"], each["offset"]) for each in done["partitions"]],
            right=("partition", "offset"),
        )
        say(f"webhook {name!r} goes on from there")


@app.command(epilog="`posthouse webhook delete shop`")
def delete(context: typer.Context, name: Name, json: Json = False, admin: Admin = None) -> None:
    """Delete a webhook and its progress. Dead letters stay."""
    with open_admin(context, admin) as client:
        client.delete(_path(name))
    _done(name, "deleted", json=json)


@app.command(epilog="`posthouse webhook test shop`")
def test(context: typer.Context, name: Name, json: Json = False, admin: Admin = None) -> None:
    """Send a made-up message now, and say what the endpoint answered."""
    from posthouse.client.errors import ClientError

    with open_admin(context, admin) as client:
        found = client.post(f"{_path(name)}/test")
    if json:
        print_json(found)
    else:
        say(f"{found['reason']}, after {found['seconds']:.3f} s")
        if found["answer"]:
            say(found["answer"])
    if found["status"] is None or not 200 <= found["status"] < 300:
        raise ClientError(f"webhook {name!r} does not work: {found['reason']}")


def _path(name: str) -> str:
    from posthouse.client.admin_client import part

    return f"/v1/webhooks/{part(name)}"


def _secret(file: Path | None) -> str | None:
    from posthouse.cli.passwords import given_secret

    return None if file is None else given_secret(file)


def _limits(
    filter: str | None,
    rate: str | None,
    concurrency: int | None,
    batch: int | None,
    timeout: float | None,
    max_attempts: int | None,
) -> dict[str, Any]:
    """Those that were given."""
    from posthouse.cli.rates import parse_rate
    from posthouse.client.errors import BadArgument

    try:
        parsed = None if rate is None else parse_rate(rate)
    except ValueError as error:
        raise BadArgument(str(error)) from None
    given = {
        "filter": filter,
        "rate": parsed,
        "concurrency": concurrency,
        "batch": batch,
        "timeout_seconds": timeout,
        "max_attempts": max_attempts,
    }
    return {name: value for name, value in given.items() if value is not None}


def _since(text: str) -> str:
    from time import time_ns

    from posthouse.cli.durations import parse_moment
    from posthouse.client.errors import BadArgument

    if text == "earliest":
        return text
    try:
        moment = parse_moment(text, time_ns() // 1_000_000)
    except ValueError as error:
        raise BadArgument(str(error)) from None
    return f"time:{datetime.fromtimestamp(moment / 1000, UTC).isoformat()}"


def _print_secret(made: dict[str, Any], *, json: bool) -> None:
    if json:
        print_json(made)
    else:
        print_table(("webhook", "secret"), [(made["name"], made["secret"])])


def _done(name: str, what: str, *, json: bool) -> None:
    if json:
        print_json({"name": name, what: True})
    else:
        say(f"{what} webhook {name!r}")


def _row(found: dict[str, Any]) -> tuple[object, ...]:
    state = found["state"] or {}
    source = f"topic {found['topic']}" if found["topic"] is not None else f"queue {found['queue']}"
    return (
        found["name"],
        source,
        found["url"],
        _state_of(found, state),
        or_dash(state.get("delivered")),
        or_dash(state.get("failed_requests")),
        or_dash(state.get("dead_letters")),
        found["lag"],
    )


def _state_of(found: dict[str, Any], state: dict[str, Any]) -> str:
    if found["paused"] is not None:
        return "paused"
    if state.get("trouble") is not None:
        return "in trouble"
    return {"open": "down", "half-open": "trying"}.get(state.get("circuit", ""), "ok")
