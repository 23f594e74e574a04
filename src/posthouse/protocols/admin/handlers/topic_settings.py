"""Settings of a topic: all of them with their meaning, and changed."""

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from posthouse.broker.access.operations import Kind, Operation
from posthouse.model.inert_settings import INERT_SETTINGS
from posthouse.model.topic_config import CONFIG_KEYS
from posthouse.model.topics import Topic
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.endpoint import Endpoint, NoBody
from posthouse.protocols.admin.handlers.topics import OfTopic

SettingChanges = Annotated[
    dict[str, str | None],
    Meta(max_length=1000, description="New values by name; null removes the topic's own."),
]


class SettingView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: str
    is_default: Annotated[bool, Meta(description="It follows the broker: the topic has no value of its own.")]
    meaning: str


class TopicSettings(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    settings: list[SettingView]


def _view(topic: Topic) -> TopicSettings:
    found = [
        SettingView(
            name=name,
            value=topic.config.text(name),
            is_default=name not in topic.overrides,
            meaning=key.doc,
        )
        for name, key in CONFIG_KEYS.items()
    ]
    found += [
        SettingView(
            name=name,
            value=topic.overrides.get(name, inert.default),
            is_default=name not in topic.overrides,
            meaning=inert.doc,
        )
        for name, inert in INERT_SETTINGS.items()
    ]
    return TopicSettings(topic=topic.name, settings=sorted(found, key=lambda each: each.name))


async def _describe(context: CallContext, parameters: OfTopic, body: NoBody) -> TopicSettings:
    context.require(Operation.DESCRIBE_CONFIGS, Kind.TOPIC, parameters.topic)
    return _view(context.broker.topic(parameters.topic))


async def _change(context: CallContext, parameters: OfTopic, body: dict[str, str | None]) -> TopicSettings:
    context.require(Operation.ALTER_CONFIGS, Kind.TOPIC, parameters.topic)

    def changed(topic: Topic) -> Mapping[str, str]:
        kept = {name: value for name, value in topic.overrides.items() if name not in body}
        return kept | {name: value for name, value in body.items() if value is not None}

    return _view(await context.broker.configure_topic(parameters.topic, changed))


TOPIC_SETTINGS: Final = (
    Endpoint(
        method="GET",
        path="/v1/topics/{topic}/settings",
        summary="All settings of a topic, with their meaning",
        tag="topics",
        handler=_describe,
        parameters=OfTopic,
        result=TopicSettings,
        problems=(404,),
    ),
    Endpoint(
        method="PATCH",
        path="/v1/topics/{topic}/settings",
        summary="Change settings of a topic",
        tag="topics",
        handler=_change,
        parameters=OfTopic,
        body=SettingChanges,
        result=TopicSettings,
        problems=(404,),
    ),
)
