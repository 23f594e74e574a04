"""Where the values of settings come from.

The first of: command-line flag, environment (POSTHOUSE_…), TOML file, default.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from posthouse.model.errors import InvalidConfig
from posthouse.settings import Settings

ENVIRONMENT_PREFIX = "POSTHOUSE_"


def load_settings(
    *,
    file: Path | None = None,
    environment: Mapping[str, str] = os.environ,
    flags: Mapping[str, Any] | None = None,
) -> Settings:
    values: dict[str, Any] = {}
    if file is not None:
        values |= _from_file(file)
    for each in fields(Settings):
        text = environment.get(ENVIRONMENT_PREFIX + each.name.upper())
        if text is not None:
            values[each.name] = text
    values |= {name: value for name, value in (flags or {}).items() if value is not None}
    return replace(Settings(), **{name: _parsed(name, value) for name, value in values.items()})


def _from_file(file: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(file.read_text())
    except FileNotFoundError:
        raise InvalidConfig(f"there is no settings file {file}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"{file} is not valid TOML: {error}") from None
    known = {each.name for each in fields(Settings)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise InvalidConfig(f"{file}: unknown setting {unknown[0]!r}; known are {', '.join(sorted(known))}")
    return values


_NUMBERS = {int: "whole number", float: "number"}
_PARSERS = {each.name: each.metadata["parse"] for each in fields(Settings)}


def _parsed(name: str, value: Any) -> Any:
    parse = _PARSERS[name]
    try:
        if isinstance(value, str):
            return parse(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return value
        return parse(str(value)) if parse in (int, float) else parse(value)
    except ValueError as error:
        reason = f"{value!r} is no {_NUMBERS[parse]}" if parse in _NUMBERS else error
        raise InvalidConfig(f"setting {name}: {reason}") from None
