"""The settings that a broker is started with, and where each of them comes from.

A value comes from the first of: command-line flag, environment (POSTHOUSE_…), TOML file, default.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from posthouse.model.errors import InvalidConfig
from posthouse.settings import Settings

ENVIRONMENT_PREFIX = "POSTHOUSE_"


class SettingSource(StrEnum):
    FLAG = "flag"
    ENVIRONMENT = "environment"
    FILE = "file"
    PROGRAM = "set"
    """A program that starts a broker inside itself."""
    DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSettings:
    settings: Settings
    sources: Mapping[str, SettingSource]
    """By the name of the setting, without those that have their defaults."""

    @classmethod
    def of_program(cls, settings: Settings) -> "LoadedSettings":
        """What differs from the defaults was set by the program."""
        given = [each.name for each in fields(settings) if getattr(settings, each.name) != each.default]
        return cls(settings=settings, sources=dict.fromkeys(given, SettingSource.PROGRAM))


def load_settings(
    *,
    file: Path | None = None,
    environment: Mapping[str, str] = os.environ,
    flags: Mapping[str, Any] | None = None,
) -> LoadedSettings:
    values: dict[str, Any] = {}
    sources: dict[str, SettingSource] = {}
    for source, found in (
        (SettingSource.FILE, {} if file is None else _from_file(file)),
        (SettingSource.ENVIRONMENT, _from_environment(environment)),
        (SettingSource.FLAG, {name: value for name, value in (flags or {}).items() if value is not None}),
    ):
        values |= found
        sources |= dict.fromkeys(found, source)
    settings = replace(Settings(), **{name: _parsed(name, value) for name, value in values.items()})
    return LoadedSettings(settings=settings, sources=sources)


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    variables = {each.name: ENVIRONMENT_PREFIX + each.name.upper() for each in fields(Settings)}
    return {name: environment[variable] for name, variable in variables.items() if variable in environment}


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
