"""`posthouse queue …`: look into AMQP queues, and act on what is in them."""

from enum import StrEnum
from typing import Annotated, Any

import typer

from posthouse.cli.delivery_limits import QueueName, limit_queue
from posthouse.cli.durations import shown_duration
from posthouse.cli.options import (
    Admin,
    Json,
    Namespace,
    SomeNamespace,
    complete_queue,
    none_yet,
    open_admin,
)
from posthouse.cli.output import counted, one_line, or_dash, print_json, print_table, say

app = typer.Typer(
    name="queue",
    help="List, describe and delete queues; peek at, purge, move and requeue their messages.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

_COLUMNS = ("queue", "namespace", "state", "ready", "unacked", "consumers", "oldest")
_NUMBERS = ("ready", "unacked", "consumers", "oldest", "position", "age", "deliveries", "bytes")
_STUCK = ("stalled", "unconsumed")
_SHOWN = 60
_CONSUMER_COLUMNS = ("consumer", "peer", "user", "channel", "prefetch", "unacked", "priority", "")
_CONSUMER_NUMBERS = ("channel", "prefetch", "unacked", "priority")


class QueueState(StrEnum):
    EMPTY = "empty"
    CONSUMED = "consumed"
    STALLED = "stalled"
    UNCONSUMED = "unconsumed"


Search = Annotated[str | None, typer.Option(metavar="TEXT", help="Only names that contain this.")]
State = Annotated[
    QueueState | None,
    typer.Option(
        metavar="STATE",
        help="Only queues in this state: empty; consumed (a consumer takes the messages); stalled (no "
        "consumer can take more before it acknowledges); unconsumed (messages, but no consumer).",
    ),
]
Stuck = Annotated[
    bool, typer.Option("--stuck", metavar="", help="Only queues whose messages no consumer takes.")
]
PeekLimit = Annotated[int, typer.Option("--max", "-n", min=1, max=500, metavar="N", help="Most messages.")]
MoveLimit = Annotated[
    int, typer.Option("--max", "-n", min=1, max=1_000_000, metavar="N", help="Most messages; the oldest go.")
]
IfEmpty = Annotated[bool, typer.Option("--if-empty", metavar="", help="Only if it has no messages.")]
IfUnused = Annotated[bool, typer.Option("--if-unused", metavar="", help="Only if it has no consumers.")]
Target = Annotated[
    str, typer.Argument(metavar="TARGET", help="Queue that gets them.", autocompletion=complete_queue)
]


@app.command("list", epilog="`posthouse queue list`\n\n`posthouse queue list --stuck`")
def list_queues(
    context: typer.Context,
    namespace: SomeNamespace = None,
    search: Search = None,
    state: State = None,
    stuck: Stuck = False,
    json: Json = False,
    admin: Admin = None,
) -> None:
    """List the queues: how many messages wait (ready) or are with consumers (unacked), and for how long."""
    with open_admin(context, admin) as client:
        queues = list(client.items("/v1/queues", namespace=namespace, search=search, state=state))
    if stuck:
        queues = [each for each in queues if each["state"] in _STUCK]
    if json:
        print_json(queues)
    elif queues:
        print_table(_COLUMNS, map(_row, queues), right=_NUMBERS)
    else:
        is_chosen = namespace or search or state or stuck
        say("there are no such queues" if is_chosen else none_yet(context, "queues"))


@app.command(epilog="`posthouse queue describe mails`")
def describe(
    context: typer.Context,
    queue: QueueName,
    namespace: Namespace = "/",
    json: Json = False,
    admin: Admin = None,
) -> None:
    """Show a queue: its messages and consumers, how it was declared, and where its dead letters go."""
    with open_admin(context, admin) as client:
        found = client.get(_path(namespace, queue))
    if json:
        print_json(found)
        return
    print_table(_COLUMNS, [_row(found)], right=_NUMBERS)
    print()
    if found["consumer_list"]:
        print_table(_CONSUMER_COLUMNS, map(_consumer_row, found["consumer_list"]), right=_CONSUMER_NUMBERS)
        print()
    more = {name: value for name, value in found.items() if name not in _SUMMARY}
    print_table(("property", "value"), _flat(more))


app.command(
    "limit",
    epilog="`posthouse queue limit mails --rate 100/s --concurrency 8`\n\n"
    "`posthouse queue limit mails --none`",
)(limit_queue)


@app.command(epilog="`posthouse queue peek mails -n 1`")
def peek(
    context: typer.Context,
    queue: QueueName,
    max: PeekLimit = 10,
    namespace: Namespace = "/",
    json: Json = False,
    admin: Admin = None,
) -> None:
    """Show the oldest messages of a queue. They stay where they are and do not count as delivered."""
    with open_admin(context, admin) as client:
        found = client.get(f"{_path(namespace, queue)}/messages", limit=max)
    messages, more = found["messages"], found["more"]
    if json:
        for message in messages:
            print_json(message)
    elif messages:
        columns = ("position", "age", "exchange", "routing key", "deliveries", "bytes", "died", "body")
        print_table(columns, map(_message_row, messages), right=_NUMBERS)
        if more:
            say(f"{counted(more, 'message')} more {'is' if more == 1 else 'are'} ready")
    else:
        say(f"queue {queue!r} has no messages that are ready")


@app.command(epilog="`posthouse queue purge mails`")
def purge(
    context: typer.Context,
    queue: QueueName,
    namespace: Namespace = "/",
    json: Json = False,
    admin: Admin = None,
) -> None:
    """Delete all messages of a queue that no consumer holds."""
    with open_admin(context, admin) as client:
        count = client.post(f"{_path(namespace, queue)}/purge")["messages"]
    if json:
        print_json({"queue": queue, "purged": count})
    else:
        say(f"deleted {counted(count, 'message')} of queue {queue!r}")


@app.command(epilog="`posthouse queue move mails mails-later -n 500`")
def move(
    context: typer.Context,
    queue: QueueName,
    target: Target,
    max: MoveLimit = 1000,
    namespace: Namespace = "/",
    json: Json = False,
    admin: Admin = None,
) -> None:
    """Move the oldest messages of a queue to another one."""
    with open_admin(context, admin) as client:
        moved = client.post(f"{_path(namespace, queue)}/move", {"to": target, "limit": max})
    _report(queue, moved, json)


@app.command(epilog="`posthouse queue requeue mails.dead`")
def requeue(
    context: typer.Context,
    queue: QueueName,
    max: MoveLimit = 1000,
    namespace: Namespace = "/",
    json: Json = False,
    admin: Admin = None,
) -> None:
    """Move dead letters back to the queues that they came from."""
    with open_admin(context, admin) as client:
        moved = client.post(f"{_path(namespace, queue)}/requeue", {"limit": max})
    _report(queue, moved, json)


@app.command(epilog="`posthouse queue delete mails --if-empty`")
def delete(
    context: typer.Context,
    queue: QueueName,
    if_empty: IfEmpty = False,
    if_unused: IfUnused = False,
    namespace: Namespace = "/",
    json: Json = False,
    admin: Admin = None,
) -> None:
    """Delete a queue with its messages."""
    with open_admin(context, admin) as client:
        client.delete(_path(namespace, queue), if_empty=if_empty or None, if_unused=if_unused or None)
    if json:
        print_json({"queue": queue, "deleted": True})
    else:
        say(f"deleted queue {queue!r}")


_SUMMARY = frozenset(
    {"namespace", "name", "state", "ready", "unacked", "consumers", "oldest_age_ms", "consumer_list"}
)


def _path(namespace: str, queue: str) -> str:
    from posthouse.client.admin_client import part

    return f"/v1/queues/{part(namespace)}/{part(queue)}"


def _row(queue: dict[str, Any]) -> tuple[object, ...]:
    oldest = queue["oldest_age_ms"]
    consumers = queue["consumers"]
    return (
        queue["name"],
        queue["namespace"],
        queue["state"],
        queue["ready"],
        queue["unacked"],
        len(consumers) if isinstance(consumers, list) else consumers,
        "-" if oldest is None else shown_duration(oldest),
    )


def _message_row(message: dict[str, Any]) -> tuple[object, ...]:
    body = message["body"]
    deaths = message["deaths"]
    return (
        message["position"],
        shown_duration(message["age_ms"]),
        or_dash(message["exchange"]),
        message["routing_key"],
        message["deliveries"],
        body["size"],
        _death(deaths[0]) if deaths else "-",
        one_line(body["data"] if body["encoding"] == "text" else f"base64:{body['data']}", _SHOWN),
    )


def _consumer_row(consumer: dict[str, Any]) -> tuple[object, ...]:
    return (
        consumer["tag"],
        or_dash(consumer["peer"]),
        or_dash(consumer["user"]),
        consumer["channel"],
        consumer["prefetch"] or "no limit",
        consumer["unacked"],
        consumer["priority"],
        "" if consumer["is_active"] else "waits",
    )


def _death(death: Any) -> str:
    if not isinstance(death, dict):
        return str(death)
    return f"{death.get('queue', '?')} ({death.get('reason', '?')})"


def _flat(fields: dict[str, Any], prefix: str = "") -> list[tuple[str, object]]:
    rows: list[tuple[str, object]] = []
    for name, value in fields.items():
        if isinstance(value, dict):
            rows += _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            rows.append((prefix + name, ", ".join(map(str, value)) or "-"))
        elif isinstance(value, float):
            rows.append((prefix + name, f"{value:,.1f}"))
        elif isinstance(value, bool):
            rows.append((prefix + name, "yes" if value else "no"))
        else:
            rows.append(
                (prefix + name, "(default)" if value == "" and name in _EXCHANGES else or_dash(value))
            )
    return rows


_EXCHANGES = frozenset({"dead_letter_exchange", "x-dead-letter-exchange"})
"""The exchange without a name is the default one."""


def _report(queue: str, moved: dict[str, Any], json: bool) -> None:
    if json:
        print_json({"queue": queue, **moved})
        return
    targets = ", ".join(f"{count:,} to {name!r}" for name, count in sorted(moved["to"].items()))
    say(
        f"moved {counted(moved['moved'], 'message')} of queue {queue!r}" + (f": {targets}" if targets else "")
    )
    if moved["left"]:
        stay = "stays where it is" if moved["left"] == 1 else "stay where they are"
        say(f"{counted(moved['left'], 'message')} {stay}: {moved['reason']}")
