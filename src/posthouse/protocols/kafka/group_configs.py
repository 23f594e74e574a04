"""A group's settings in Kafka's terms."""

from posthouse.broker.groups.config import GROUP_CONFIG_KEYS, GroupConfigKey, default_config
from posthouse.broker.groups.configs import GroupConfigs
from posthouse.model.ids import GroupId
from posthouse.protocols.kafka.config_resources import ConfigEntry, ConfigSource, ConfigType, Synonym
from posthouse.settings import Settings

_STANDARD = default_config(Settings())


def describe_group(configs: GroupConfigs, group: GroupId) -> list[ConfigEntry]:
    """Every setting that a group can have, by name."""
    return [_entry(configs, group, name, key) for name, key in sorted(GROUP_CONFIG_KEYS.items())]


def _entry(configs: GroupConfigs, group: GroupId, name: str, key: GroupConfigKey) -> ConfigEntry:
    standard, default = _STANDARD.text(name), configs.defaults.text(name)
    shown_as = key.broker_name or name
    synonyms = [Synonym(name=shown_as, value=standard, source=ConfigSource.DEFAULT)]
    if default != standard:
        synonyms.insert(0, Synonym(name=shown_as, value=default, source=ConfigSource.BROKER))
    if name in configs.overrides(group):
        own = configs.get(group).text(name)
        synonyms.insert(0, Synonym(name=name, value=own, source=ConfigSource.GROUP))
    return ConfigEntry(
        name=name,
        value=synonyms[0].value,
        type=_type_of(default),
        source=synonyms[0].source,
        read_only=False,
        doc=key.doc,
        synonyms=tuple(synonyms),
    )


def _type_of(text: str) -> ConfigType:
    if text.isdigit():
        return ConfigType.INT
    return ConfigType.BOOLEAN if text in ("true", "false") else ConfigType.STRING
