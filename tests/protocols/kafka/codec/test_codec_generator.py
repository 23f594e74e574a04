"""The output is what the generator writes, and nothing of kio is needed to use it."""

import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from posthouse.protocols.kafka.codec.own.table import TABLE as OWN_TABLE
from posthouse.protocols.kafka.codec.registry import APIS as REGISTRY
from posthouse.protocols.kafka.codec.registry import FIRST_OWN_KEY
from tools.kafka_codec.__main__ import OUTPUT, rewrite, stale_files
from tools.kafka_codec.apis import APIS
from tools.kafka_codec.merge import MergeError, clashes, merge, rename
from tools.kafka_codec.schema import Field, Struct, load

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.protocol.api_key import ApiKey


def test_output_is_up_to_date() -> None:
    assert stale_files(OUTPUT) == []


def test_stale_missing_and_left_over_files_are_found_and_rewritten(tmp_path: Path) -> None:
    assert "table.py" in rewrite(tmp_path)
    assert stale_files(tmp_path) == []
    (tmp_path / "table.py").write_text("TABLE = ()")
    (tmp_path / "fetch.py").unlink()
    (tmp_path / "dropped.py").write_text("")
    assert stale_files(tmp_path) == ["dropped.py", "fetch.py", "table.py"]
    rewrite(tmp_path)
    assert stale_files(tmp_path) == []


def test_every_api_is_in_the_registry() -> None:
    own = [row[0] for row in OWN_TABLE]
    assert list(REGISTRY) == [api.key for api in APIS] + own
    assert min(own) >= FIRST_OWN_KEY, "far from what Kafka may come to use"
    for api in APIS:
        entry = REGISTRY[api.key]
        assert (entry.min_version, entry.max_version) == (api.min_version, api.max_version)
        assert entry.request_type.__name__ == f"{entry.name}Request"
        assert entry.response_type.__name__ == f"{entry.name}Response"
        assert entry.name == ApiKey(api.key).name
        for version in api.versions:
            assert entry.is_flexible(version) == load(api, version, "request").flexible
            assert entry.is_flexible(version) == load(api, version, "response").flexible
            assert entry.supports(version)
        assert not entry.supports(api.min_version - 1)
        assert not entry.supports(api.max_version + 1)


def test_produce_is_advertised_from_zero() -> None:
    assert REGISTRY[0].advertised_min == 0
    assert REGISTRY[1].advertised_min == 4


def test_no_oracle_is_imported_at_run_time() -> None:
    program = (
        "import sys\n"
        "from posthouse.protocols.kafka.codec import headers, registry\n"
        "[api.request_type for api in registry.APIS.values()]\n"
        "print([name for name in ('kio', 'kafka', 'hypothesis') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_a_field_that_changes_its_type_is_refused() -> None:
    def version(kind: str) -> Struct:
        return Struct("Thing", False, (Field("size", kind, False, False, None, 0),))

    with pytest.raises(MergeError, match=r"Thing\.size changes its type"):
        merge([version("int32"), version("int64")])


def test_a_dropped_field_stays_where_it_was() -> None:
    def version(*names: str) -> Struct:
        return Struct("Thing", False, tuple(Field(n, "int32", False, False, None, 0) for n in names))

    merged = merge([version("a", "b", "c"), version("a", "c", "d")])["Thing"]
    assert [member.name for member in merged.members] == ["a", "b", "c", "d"]


def test_types_that_differ_between_the_sides_clash_with_all_that_contains_them() -> None:
    def side(kind: str) -> Struct:
        part = Struct("Part", True, (Field("size", kind, False, False, None, 0),))
        same = Struct("Same", True, (Field("id", "int32", False, False, None, 0),))
        topic = Struct("Topic", True, (Field("parts", "struct", True, False, None, None, part),))
        fields = (
            Field("topics", "struct", True, False, None, None, topic),
            Field("same", "struct", False, False, None, None, same),
        )
        return Struct("Message", True, fields)

    these, those = side("int32"), side("int64")
    assert clashes(merge([these]), merge([those])) == {"Part", "Topic", "Message"}
    assert clashes(merge([these]), merge([these])) == set()
    renamed = rename(these, {"Part": "RequestPart"})
    assert list(merge([renamed])) == ["RequestPart", "Topic", "Same", "Message"]
