"""`posthouse serve` as a Typer command: for help, completion and errors."""

import inspect
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from posthouse.cli.serve_options import OPTIONS, ServeOption, start


class _PlainCommand(TyperCommand):
    """Help in lines instead of a table: there are many settings, and a table truncates their long names."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.rich_markup_mode = None


def register(app: typer.Typer, *, panel: str) -> None:
    app.command(
        rich_help_panel=panel,
        cls=_PlainCommand,
        epilog="Example: posthouse serve --data /var/lib/posthouse --kafka 127.0.0.1:9092\n\n"
        "When it is ready it prints one line of JSON with the addresses it listens on. SIGTERM or Ctrl-C "
        "lets it finish what it is doing; a second one ends it at once.",
    )(serve)


def serve(**values: Any) -> None:
    """Start the broker.

    Every setting is an option here, an environment variable (POSTHOUSE_DATA for --data, and so on) and a
    key of the file given with --config (data). Options override variables, and variables the file.
    """
    start(**values)


def _parameter(option: ServeOption) -> inspect.Parameter:
    declared = typer.Option(
        option.flag,
        help=option.doc,
        metavar=option.metavar,
        show_default=option.default or False,
        hidden=option.is_hidden,
    )
    annotation = Annotated[bool | None, declared] if option.is_switch else Annotated[str | None, declared]
    return inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


# Typer reads the signature: the options are those that the settings declare.
serve.__signature__ = inspect.Signature(list(map(_parameter, OPTIONS)))  # type: ignore[attr-defined]
