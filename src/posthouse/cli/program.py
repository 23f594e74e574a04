"""The commands, put together. They import what they need when they run."""

from typing import Annotated

import typer

from posthouse import __version__
from posthouse.cli import archive, consume, groups, log, pipeline, produce, serve_command, topics
from posthouse.cli.invocation import DEFAULT_BOOTSTRAP, Invocation

app = typer.Typer(
    name="posthouse",
    help="A message broker that Kafka clients use as it is.",
    epilog="Start a broker with `posthouse serve`, then send a first message from another "
    "terminal:\n\n`echo hello | posthouse produce greetings`\n\n"
    "`posthouse consume greetings --from-beginning`",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
serve_command.register(app)
app.add_typer(topics.app)
produce.register(app)
consume.register(app)
app.add_typer(groups.app)
app.add_typer(log.app)
app.add_typer(archive.app)
app.add_typer(pipeline.app)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"posthouse {__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    bootstrap: Annotated[
        str, typer.Option(metavar="HOST:PORT", envvar="POSTHOUSE_BOOTSTRAP", help="Where the broker is.")
    ] = DEFAULT_BOOTSTRAP,
    debug: Annotated[
        bool,
        typer.Option(
            "--debug", metavar="", envvar="POSTHOUSE_DEBUG", help="Show where in the code an error arose."
        ),
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
    invocation.debug = debug


def execute(arguments: list[str], invocation: Invocation) -> int:
    try:
        return app(arguments, prog_name="posthouse", standalone_mode=False, obj=invocation) or 0
    except typer.Abort:
        return 1
