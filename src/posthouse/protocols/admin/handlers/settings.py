"""Settings of the broker: what it was started with, and what was changed while it runs."""

from dataclasses import fields
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from posthouse.broker.access.operations import Operation
from posthouse.broker.dynamic_settings import SettingScope
from posthouse.loaded_settings import SettingSource
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.endpoint import Endpoint, NoBody, NoParameters

_SECRET_WORDS = ("password", "secret", "token")
_HIDDEN = "(hidden)"

Source = Annotated[
    Literal["flag", "environment", "file", "default", "set", "runtime"],
    Meta(
        description="`environment`: a variable. `set`: by the program that the broker runs in. `runtime`: "
        "changed while the broker runs."
    ),
]


class BrokerSetting(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: Annotated[str | None, Meta(description="null is off, or not given.")]
    source: Source
    meaning: str


class BrokerSettings(msgspec.Struct, frozen=True, kw_only=True):
    settings: list[BrokerSetting]


async def _describe(context: CallContext, parameters: NoParameters, body: NoBody) -> BrokerSettings:
    context.require_cluster(Operation.DESCRIBE_CONFIGS)
    found = []
    sources = context.backend.setting_sources
    for each in fields(context.settings):
        value = getattr(context.settings, each.name)
        found.append(
            BrokerSetting(
                name=each.name,
                value=_HIDDEN if _is_secret(each.name, value) else _text(value),
                source=sources.get(each.name, SettingSource.DEFAULT).value,
                meaning=each.metadata["doc"],
            )
        )
    changed = context.broker.dynamic_settings
    for scope in SettingScope:
        for name, text in sorted(changed.get(scope).items()):
            meaning = f"Changed while the broker runs, for the {scope}."
            found.append(BrokerSetting(name=name, value=text, source="runtime", meaning=meaning))
    return BrokerSettings(settings=found)


def _is_secret(name: str, value: object) -> bool:
    """Names of files and switches are no secrets."""
    return isinstance(value, str) and any(word in name for word in _SECRET_WORDS)


def _text(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


SETTINGS: Final = Endpoint(
    method="GET",
    path="/v1/settings",
    summary="Settings of the broker, with their meaning",
    tag="broker",
    handler=_describe,
    result=BrokerSettings,
)
