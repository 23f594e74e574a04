"""Where settings come from, and which of several places counts."""

from pathlib import Path

import pytest

from posthouse.loaded_settings import LoadedSettings, SettingSource, load_settings
from posthouse.model.errors import InvalidConfig
from posthouse.settings import Settings


def test_flags_count_more_than_variables_and_these_more_than_the_file(tmp_path: Path) -> None:
    file = tmp_path / "posthouse.toml"
    file.write_text("max_unacked = 1\nlog_level = 'debug'\ndefault_partitions = 2\n")
    loaded = load_settings(
        file=file,
        environment={"POSTHOUSE_MAX_UNACKED": "3", "POSTHOUSE_LOG_LEVEL": "error", "OTHER": "x"},
        flags={"max_unacked": "5", "journal_bytes": None},
    )
    settings = loaded.settings
    assert (settings.max_unacked, settings.log_level, settings.default_partitions) == (5, "error", 2)
    assert loaded.sources == {
        "max_unacked": SettingSource.FLAG,
        "log_level": SettingSource.ENVIRONMENT,
        "default_partitions": SettingSource.FILE,
    }


def test_a_default_that_is_given_has_a_source() -> None:
    loaded = load_settings(environment={"POSTHOUSE_LOG_LEVEL": "info"})
    assert loaded.settings == Settings()
    assert loaded.sources == {"log_level": SettingSource.ENVIRONMENT}


def test_what_a_program_sets_differs_from_the_defaults() -> None:
    loaded = LoadedSettings.of_program(Settings(memory=True, log_level="info"))
    assert loaded.sources == {"memory": SettingSource.PROGRAM}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nonsense = 1", "unknown setting 'nonsense'"),
        ("max_unacked =", "is not valid TOML"),
        ("max_unacked = 'many'", "setting max_unacked: 'many' is no whole number"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "posthouse.toml"
    file.write_text(text)
    with pytest.raises(InvalidConfig, match=expected):
        load_settings(file=file, environment={})


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="there is no settings file"):
        load_settings(file=tmp_path / "none.toml", environment={})
