"""All commands of the program. They import what they need when they run."""

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from posthouse import __version__
from posthouse.cli import (
    acls,
    archive,
    brokers,
    cluster,
    config,
    connections,
    consume,
    groups,
    half_messages,
    log,
    outbox,
    pipeline,
    produce,
    profile_command,
    queues,
    quotas,
    routing,
    sagas,
    serve_command,
    status,
    storage,
    topics,
    transactions,
    users,
    webhooks,
)
from posthouse.cli.bash_completion import is_asked_by_bash, quoted_output
from posthouse.cli.invocation import DEFAULT_ADMIN, DEFAULT_BOOTSTRAP, Invocation
from posthouse.cli.login_options import repeat_login_options

app = typer.Typer(
    name="posthouse",
    help="A message broker for Kafka and RabbitMQ clients.\n\n"
    "`posthouse serve` starts one: Kafka clients connect to port 9092, RabbitMQ clients (AMQP 0-9-1) to "
    "5672, operators (HTTP) to 15672. In another terminal:\n\n"
    "`echo hello | posthouse produce greetings`\n\n"
    "`posthouse consume greetings --from-beginning`\n\n"
    "`posthouse queue list` shows the queues of RabbitMQ clients, `posthouse status` how the broker is.",
    epilog="`posthouse COMMAND --help` explains a command and has examples. All commands are in docs/cli.md.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
_FIRST = "To begin"
_WATCH = "To see how the broker is"
_KAFKA = "Topics and consumer groups (Kafka)"
_AMQP = "Queues (RabbitMQ)"
_ACCESS = "Who may do what"
_MORE = "Files, archives and pipelines"
_APPLICATIONS = "Databases of applications"

serve_command.register(app, panel=_FIRST)
produce.register(app, panel=_FIRST)
consume.register(app, panel=_FIRST)
app.add_typer(profile_command.app, rich_help_panel=_FIRST)
status.register(app, panel=_WATCH)
app.add_typer(brokers.app, rich_help_panel=_WATCH)
app.add_typer(cluster.app, rich_help_panel=_WATCH)
app.add_typer(connections.app, rich_help_panel=_WATCH)
app.add_typer(config.app, rich_help_panel=_WATCH)
app.add_typer(topics.app, rich_help_panel=_KAFKA)
app.add_typer(groups.app, rich_help_panel=_KAFKA)
app.add_typer(transactions.app, rich_help_panel=_KAFKA)
app.add_typer(half_messages.app, rich_help_panel=_KAFKA)
app.add_typer(webhooks.app, rich_help_panel=_KAFKA)
app.add_typer(queues.app, rich_help_panel=_AMQP)
app.add_typer(routing.exchanges, rich_help_panel=_AMQP)
app.add_typer(routing.bindings, rich_help_panel=_AMQP)
app.add_typer(users.app, rich_help_panel=_ACCESS)
app.add_typer(acls.app, rich_help_panel=_ACCESS)
app.add_typer(quotas.app, rich_help_panel=_ACCESS)
app.add_typer(log.app, rich_help_panel=_MORE)
app.add_typer(storage.app, rich_help_panel=_MORE)
app.add_typer(archive.app, rich_help_panel=_MORE)
app.add_typer(outbox.app, rich_help_panel=_APPLICATIONS)
app.add_typer(sagas.app, rich_help_panel=_APPLICATIONS)
app.add_typer(pipeline.app, rich_help_panel=_MORE)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"posthouse {__version__}")
        raise typer.Exit


_LOGIN = "Where the broker is, and how to log in (before or after the command)"

Tls = Annotated[
    bool,
    typer.Option(
        "--tls",
        metavar="",
        envvar="POSTHOUSE_TLS",
        rich_help_panel=_LOGIN,
        help="Use TLS, and trust the certificate authorities of the system.",
    ),
]
Ca = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        envvar="POSTHOUSE_CA",
        rich_help_panel=_LOGIN,
        help="Use TLS, and trust this certificate authority (PEM).",
    ),
]
Certificate = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        envvar="POSTHOUSE_CERTIFICATE",
        rich_help_panel=_LOGIN,
        help="Use TLS, and present this client certificate (PEM).",
    ),
]
Key = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        envvar="POSTHOUSE_KEY",
        rich_help_panel=_LOGIN,
        help="Private key of the certificate, if it is in another file.",
    ),
]
User = Annotated[
    str | None,
    typer.Option(metavar="USER", envvar="POSTHOUSE_USER", rich_help_panel=_LOGIN, help="User to log in as."),
]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        envvar="POSTHOUSE_PASSWORD_FILE",
        rich_help_panel=_LOGIN,
        help="File with the password in its first line; or set POSTHOUSE_PASSWORD, or type it.",
    ),
]
LoginMechanism = Annotated[
    str | None,
    typer.Option(
        "--mechanism",
        metavar="NAME",
        envvar="POSTHOUSE_MECHANISM",
        rich_help_panel=_LOGIN,
        help="SASL mechanism: SCRAM-SHA-256 (default), SCRAM-SHA-512 or PLAIN.",
    ),
]


@app.callback()
def options(
    context: typer.Context,
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            envvar="POSTHOUSE_PROFILE",
            rich_help_panel=_LOGIN,
            help="Profile to use, see 'posthouse profile'.",
        ),
    ] = None,
    bootstrap: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            envvar="POSTHOUSE_BOOTSTRAP",
            rich_help_panel=_LOGIN,
            help=f"Address of the broker for Kafka clients ({DEFAULT_BOOTSTRAP} by default).",
        ),
    ] = None,
    admin: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            envvar="POSTHOUSE_ADMIN_ADDRESS",
            rich_help_panel=_LOGIN,
            help=f"Address of the broker for operators, HTTP ({DEFAULT_ADMIN} by default).",
        ),
    ] = None,
    tls: Tls = False,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    user: User = None,
    password_file: PasswordFile = None,
    mechanism: LoginMechanism = None,
    debug: Annotated[
        bool,
        typer.Option("--debug", metavar="", envvar="POSTHOUSE_DEBUG", help="Show the traceback of an error."),
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", metavar="", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    invocation = context.find_object(Invocation)
    assert invocation is not None
    invocation.bootstrap = bootstrap
    invocation.admin = admin
    invocation.profile = profile
    invocation.debug = debug
    invocation.tls = tls
    invocation.ca = ca
    invocation.certificate = certificate
    invocation.key = key
    invocation.user = user
    invocation.password = os.environ.get("POSTHOUSE_PASSWORD")
    invocation.password_file = password_file
    invocation.mechanism = mechanism


def execute(arguments: list[str], invocation: Invocation) -> int:
    command = typer.main.get_command(app)
    repeat_login_options(command)
    completing = quoted_output(os.environ) if is_asked_by_bash(os.environ) else nullcontext()
    try:
        with completing:
            return command(arguments, prog_name="posthouse", standalone_mode=False, obj=invocation) or 0
    except typer.Abort:
        return 1
