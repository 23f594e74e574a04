"""A group's settings in Kafka's terms. Only share groups have any."""

from collections.abc import Mapping

from posthouse.broker.shares.config import SHARE_CONFIG_KEYS
from posthouse.broker.shares.configs import ShareConfigs
from posthouse.model.ids import GroupId
from posthouse.protocols.kafka.config_resources import ConfigEntry, ConfigSource, ConfigType, Synonym


def describe_group(configs: ShareConfigs, group: GroupId) -> list[ConfigEntry]:
    """Every setting that the group has or could have, by name."""
    return [_entry(configs, group, name, key) for name, key in sorted(SHARE_CONFIG_KEYS.items())]


def _entry(configs: ShareConfigs, group: GroupId, name: str, key: Mapping[str, str]) -> ConfigEntry:
    default = configs.defaults.text(name)
    synonyms = [Synonym(name=f"group.{name}", value=default, source=ConfigSource.DEFAULT)]
    if name in configs.overrides(group):
        own = configs.get(group).text(name)
        synonyms.insert(0, Synonym(name=name, value=own, source=ConfigSource.GROUP))
    return ConfigEntry(
        name=name,
        value=synonyms[0].value,
        type=ConfigType.INT if default.isdigit() else ConfigType.STRING,
        source=synonyms[0].source,
        read_only=False,
        doc=key["doc"],
        synonyms=tuple(synonyms),
    )
