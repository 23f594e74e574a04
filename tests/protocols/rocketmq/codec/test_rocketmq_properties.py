import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.protocols.rocketmq.codec.errors import BadProperties
from posthouse.protocols.rocketmq.codec.properties import decode_properties, encode_properties
from tests.protocols.rocketmq.codec.rocketmq_cases import few

_plain = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), max_size=8)


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("", {}),
        ("TAGS\x01A\x02KEYS\x01k1 k2\x02", {"TAGS": "A", "KEYS": "k1 k2"}),
        ("TAGS\x01A\x02KEYS\x01k1", {"TAGS": "A", "KEYS": "k1"}),
        ("TAGS\x01\x02", {"TAGS": ""}),
        ("TAGS\x01", {"TAGS": ""}),
        ("\x02\x02TAGS\x01A\x02\x02", {"TAGS": "A"}),
        ("TAGS\x02KEYS\x01k\x02", {"KEYS": "k"}),
        ("\x01A\x02KEYS\x01k\x02", {"KEYS": "k"}),
        ("a\x011\x02a\x012\x02", {"a": "2"}),
    ],
)
def test_reading(text: str, properties: dict[str, str]) -> None:
    assert decode_properties(text) == properties


def test_writing() -> None:
    assert encode_properties({"TAGS": "A", "KEYS": "", "é": "ü"}) == "TAGS\x01A\x02KEYS\x01\x02é\x01ü\x02"


def test_a_separator_in_a_value_is_refused() -> None:
    with pytest.raises(BadProperties, match="'a'"):
        decode_properties("a\x01b\x01c\x02")


@pytest.mark.parametrize(
    "properties", [{"": "v"}, {"a\x01": "v"}, {"a": "v\x01"}, {"a\x02": "v"}, {"a": "\x02"}]
)
def test_what_cannot_be_written(properties: dict[str, str]) -> None:
    with pytest.raises(BadProperties):
        encode_properties({"fine": "1", **properties})


@few(200)
@given(st.dictionaries(_plain.filter(bool), _plain, max_size=5), st.booleans())
def test_round_trip(properties: dict[str, str], is_cut: bool) -> None:
    text = encode_properties(properties)
    assert decode_properties(text.removesuffix("\x02") if is_cut else text) == properties


@few(200)
@given(st.text(st.sampled_from("ab\x01\x02"), max_size=12))
def test_any_text(text: str) -> None:
    try:
        properties = decode_properties(text)
    except BadProperties:
        return
    assert decode_properties(encode_properties(properties)) == properties
