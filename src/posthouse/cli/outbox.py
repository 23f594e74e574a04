"""`posthouse outbox …`: the tables of an outbox, the relay that sends its messages, and how it is."""

from __future__ import annotations

import os
import signal
import socket
import uuid
from contextlib import closing
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from posthouse.cli.durations import shown_duration
from posthouse.cli.options import Bootstrap, Json, invocation_of
from posthouse.cli.output import counted, print_json, print_table, say

if TYPE_CHECKING:
    from posthouse.consistency.amqp_target import AmqpTarget
    from posthouse.consistency.databases import Database
    from posthouse.consistency.kafka_target import KafkaTarget
    from posthouse.consistency.log_target import LogTarget
    from posthouse.consistency.outbox_table import OutboxTable

app = typer.Typer(
    name="outbox",
    help="Send what applications have published in transactions of their database.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

_SHOWN = 20
_COLUMNS = ("message", "topic", "why it is set aside")

_DATABASE = typer.Option(
    "--database",
    metavar="URL",
    envvar="POSTHOUSE_OUTBOX_DATABASE",
    help="Database of the application: postgresql://USER@HOST/NAME, mysql://USER@HOST/NAME or sqlite:///PATH.",
)
DatabaseUrl = Annotated[str, _DATABASE]
SomeDatabaseUrl = Annotated[str | None, _DATABASE]
Print = Annotated[
    str | None,
    typer.Option(
        "--print",
        metavar="DATABASE",
        help="Only print a migration, for postgresql, mariadb or sqlite.",
    ),
]
As = Annotated[
    str,
    typer.Option("--as", metavar="TOOL", help="What to print: sql, or a migration for alembic or django."),
]
After = Annotated[
    str | None,
    typer.Option(
        "--after",
        metavar="MIGRATION",
        help="The one before it: a revision of Alembic, or APP.NAME with Django.",
    ),
]
Once = Annotated[bool, typer.Option("--once", metavar="", help="Send what is due, and end.")]
Poll = Annotated[
    float,
    typer.Option(
        "--poll-seconds",
        metavar="S",
        min=0.01,
        help="How often to look for new messages. PostgreSQL tells of them at once.",
    ),
]
To = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="URL",
        envvar="POSTHOUSE_OUTBOX_TO",
        help="Where to send them, if not to Posthouse: kafka://HOST:PORT, or amqp://USER:PASSWORD@HOST/VHOST.",
    ),
]
Retry = Annotated[
    bool, typer.Option("--retry", metavar="", help="Try the messages again that were set aside.")
]


@app.command(
    epilog="`posthouse outbox init --database postgresql://app@localhost/shop`\n\n"
    "`posthouse outbox init --print postgresql --as alembic --after 3f9c1a > posthouse_outbox.py`\n\n"
    "`posthouse outbox init --print sqlite --as django --after shop.0001_initial > 0002_outbox.py`"
)
def init(
    database: SomeDatabaseUrl = None, only_print: Print = None, tool: As = "sql", after: After = None
) -> None:
    """Make the tables of outbox and inbox in the database of an application."""
    from posthouse.consistency.dialects import Dialect
    from posthouse.consistency.migrations import MigrationTool, migration
    from posthouse.consistency.outbox_table import init

    if only_print is not None:
        dialect = Dialect(_one_of(Dialect, only_print, "--print"))
        print(migration(MigrationTool(_one_of(MigrationTool, tool, "--as")), dialect, after), end="")
        return
    if tool != "sql" or after is not None:
        raise typer.BadParameter("add --print with the kind of database", param_hint="--as or --after")
    if database is None:
        raise typer.BadParameter("give the URL of a database, or --print", param_hint="--database")
    with _opened(database) as opened:
        init(opened)
    say("made the tables of outbox and inbox; start 'posthouse outbox relay' to send what is published there")


@app.command(
    epilog="`posthouse outbox relay --database postgresql://app@localhost/shop`\n\n"
    "`posthouse outbox relay --database sqlite:///shop.db --once`\n\n"
    "`posthouse outbox relay --database sqlite:///shop.db --to kafka://localhost:9092`"
)
def relay(
    context: typer.Context,
    database: DatabaseUrl,
    to: To = None,
    once: Once = False,
    poll_seconds: Poll = 1.0,
    bootstrap: Bootstrap = None,
) -> None:
    """Send the messages of an outbox to their topics: each once, and those of one key in order.

    Any number of relays may run for one database, and any of them may be killed at any moment. With
    `--to amqp://…` a message may come again after that.
    """
    from posthouse.consistency.relay import BATCH_SIZE
    from posthouse.consistency.relaying import Relaying
    from posthouse.consistency.target_urls import batch_size_for

    target, place = _target(context, bootstrap, to)
    owner = f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:8]}"
    with closing(target):
        relaying = Relaying(
            lambda: _opened(database),
            target,
            owner,
            poll_seconds=poll_seconds,
            batch_size=BATCH_SIZE if to is None else batch_size_for(to),
        )
        if once:
            relaying.once()
            counts = relaying.counts
            aside = (
                f"; {counts.set_aside} set aside, see 'posthouse outbox status'" if counts.set_aside else ""
            )
            say(f"sent {counted(counts.sent, 'message')}{aside}")
            with _opened(database) as opened:
                if _table(opened).stopped():
                    raise typer.Exit(1)  # the log has said why
            return
        with _opened(database) as opened:  # says at once what is wrong with it
            _table(opened).check()
        signal.signal(signal.SIGTERM, lambda *_: relaying.stop.set())
        signal.signal(signal.SIGINT, lambda *_: relaying.stop.set())
        say(f"relaying to {place}; Ctrl-C ends it")
        relaying.run()
        say(f"sent {counted(relaying.counts.sent, 'message')}")


@app.command(epilog="`posthouse outbox status --database postgresql://app@localhost/shop`")
def status(database: DatabaseUrl, retry: Retry = False, json: Json = False) -> None:
    """Show how many messages wait in an outbox, for how long, and which the broker has refused."""
    with _opened(database) as opened:
        table = _table(opened)
        if retry:
            say(f"{counted(table.retry_failed(), 'message')} will be tried again")
        state = table.state()
        failures = table.failures(_SHOWN)
        stopped = table.stopped()
    if json:
        rows = [{"message": id, "topic": topic, "reason": reason} for _, id, topic, reason in failures]
        print_json(
            {
                "waiting": state.waiting,
                "due": state.due,
                "set_aside": state.failed,
                "oldest_due_ms": state.oldest_ms,
                "first_set_aside": rows,
                "stopped_shards": [{"shard": shard, "reason": reason} for shard, reason in stopped],
            }
        )
        return
    oldest = "" if state.oldest_ms is None else f", the oldest since {shown_duration(state.oldest_ms)}"
    say(f"{counted(state.waiting, 'message')} waiting, {state.due} of them due{oldest}")
    for shard, reason in stopped:
        say(f"shard {shard} is stopped: {reason}")
    if failures:
        say(f"{counted(state.failed, 'message')} set aside; '--retry' tries them again")
        print_table(_COLUMNS, [(id, topic, reason) for _, id, topic, reason in failures])


@app.command(epilog="`posthouse outbox rename --database postgresql://app@localhost/shop`")
def rename(database: DatabaseUrl) -> None:
    """Give an outbox a new name at the broker, after its database was restored or copied.

    Stop its relays first. Messages that were sent before and are in the table again will come again.
    """
    with _opened(database) as opened:
        name = _table(opened).rename()
    say(f"the outbox is now {name!r}; start 'posthouse outbox relay' again")


def _one_of(choices: type[StrEnum], given: str, option: str) -> str:
    if given not in list(choices):
        raise typer.BadParameter(f"{given!r} is none of {', '.join(choices)}", param_hint=option)
    return given


def _target(
    context: typer.Context, bootstrap: str | None, url: str | None
) -> tuple[LogTarget | KafkaTarget | AmqpTarget, str]:
    """And how people call it."""
    from posthouse.consistency.log_target import LogTarget
    from posthouse.consistency.target_urls import open_target, shown

    if url is not None:
        return open_target(url), shown(url)
    invocation = invocation_of(context, bootstrap)
    return LogTarget(invocation.kafka_address, security=invocation.security()), invocation.kafka_address


def _opened(url: str) -> Database:
    from posthouse.consistency.databases import open_database

    return open_database(url)


def _table(database: Database) -> OutboxTable:
    from posthouse.consistency.outbox_table import OutboxTable
    from posthouse.consistency.relaying import LEASE_SECONDS

    return OutboxTable(database, "", lease_seconds=LEASE_SECONDS)
