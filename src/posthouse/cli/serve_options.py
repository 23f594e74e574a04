"""The options of `posthouse serve`, derived from the settings, and a fast path around Typer.

Importing Typer takes longer than starting the broker. So a command line with plain options and values is
parsed here; everything else (help, a mistake, completion) is left to Typer.
"""

import gc
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, get_args

from posthouse.loaded_settings import load_settings
from posthouse.settings import Address, Settings

# These change the meaning of a command line in ways that only Typer knows.
_TYPER_VARIABLES = ("POSTHOUSE_DEBUG", "_POSTHOUSE_COMPLETE")
_METAVARS = {Path: "PATH", Address: "HOST:PORT", int: "N", float: "SECONDS", bool: "true|false"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOption:
    name: str
    doc: str
    metavar: str = ""
    default: str = ""
    is_switch: bool = False
    """Given without a value."""
    is_hidden: bool = False

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")


def _options() -> list[ServeOption]:
    options = []
    for setting in fields(Settings):
        kind: Any = next((each for each in get_args(setting.type) if each is not type(None)), setting.type)
        # A switch that is off by default is given by its name; all other options take a value.
        is_switch = kind is bool and not setting.default
        options.append(
            ServeOption(
                name=setting.name,
                doc=setting.metadata["doc"],
                metavar="" if is_switch else _metavar(kind),
                default="" if is_switch or setting.default is None else _shown(setting.default),
                is_switch=is_switch,
            )
        )
    return options


def _metavar(kind: Any) -> str:
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return "|".join(kind)
    return _METAVARS.get(kind, "TEXT")


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


OPTIONS = (
    *_options(),
    ServeOption(name="config", metavar="FILE.toml", doc="File with settings, in TOML; or POSTHOUSE_CONFIG."),
    ServeOption(
        name="hints", doc="Say on stderr how to send a first message.", is_switch=True, is_hidden=True
    ),
)
_BY_FLAG = {option.flag: option for option in OPTIONS}


def plain_values(arguments: Sequence[str], environment: Mapping[str, str]) -> dict[str, Any] | None:
    """The values of plain arguments behind 'serve'; None if Typer has to parse them."""
    if any(name in environment for name in _TYPER_VARIABLES):
        return None
    values: dict[str, Any] = {}
    rest = iter(arguments)
    for argument in rest:
        flag, equals, value = argument.partition("=")
        option = _BY_FLAG.get(flag)
        if option is None or (equals and option.is_switch):
            return None
        if not equals and not option.is_switch:
            value = next(rest, "-")
            if value.startswith("-"):
                return None
        values[option.name] = True if option.is_switch else value
    return values


def start(*, config: str | None = None, hints: bool = False, **flags: Any) -> None:
    """Serve until a signal arrives; `flags` are settings, None for those not given."""
    file = config or os.environ.get("POSTHOUSE_CONFIG")
    loaded = load_settings(file=Path(file) if file else None, flags=flags)
    loaded.settings.check()
    gc.disable()  # objects created before the broker is ready never become garbage
    try:
        from posthouse.cli.serve import run

        run(loaded, hints=bool(hints))
    finally:
        gc.enable()
