"""The options of a login are allowed behind a command, too, in the same place as --bootstrap and --admin.

They are declared once, in front of the command. Every command that reaches a broker (it has an option
--bootstrap or --admin) gets a copy of those that it does not have itself with another meaning: the --user of
`acl list`, say, is the user whose permissions are listed.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any

from posthouse.cli.invocation import Invocation

_REPEATED = ("profile", "tls", "ca", "certificate", "key", "user", "password_file", "mechanism")
_PANEL = "To log in (also before the command)"


def repeat_login_options(program: Any) -> None:
    """`program` is the group of all commands, as Typer makes it; its classes have no public names."""
    declared = {parameter.name: parameter for parameter in program.params}
    for command in _commands(program):
        own = {parameter.name for parameter in command.params}
        spelled = {spelling for parameter in command.params for spelling in parameter.opts}
        if own.isdisjoint({"bootstrap", "admin"}) or "tls" in own:  # profiles have a login of their own
            continue
        for name in _REPEATED:
            if name not in own and spelled.isdisjoint(declared[name].opts):
                command.params.append(_repeated(declared[name]))


def _commands(group: Any) -> Iterator[Any]:
    for command in group.commands.values():
        if hasattr(command, "commands"):
            yield from _commands(command)
        else:
            yield command


def _repeated(declared: Any) -> Any:
    option = copy(declared)
    option.envvar = None  # read in front of the command already
    option.expose_value = False
    option.callback = _remember
    option.rich_help_panel = _PANEL
    return option


def _remember(context: Any, option: Any, value: Any) -> None:
    invocation = context.find_object(Invocation)
    if value and invocation is not None:
        setattr(invocation, option.name, value)
