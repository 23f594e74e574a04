import json
import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.protocols.rocketmq.codec.errors import BadBody
from posthouse.protocols.rocketmq.codec.lenient_json import MAX_LENIENT_SIZE, Json, decode_json
from posthouse.protocols.rocketmq.codec.members import Members
from tests.protocols.rocketmq.codec.rocketmq_cases import few
from tests.yardstick import slowness

PARTS = [b"[],", b"1,", b'"\\u00e9",', b"{1:1},"]
QUEUE = '{"brokerName":"b","queueId":0,"topic":"t"}'


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{}", {}),
        (' [ 1 , -2.5 , "a" , null , true ] ', [1, -2.5, "a", None, True]),
        ('{0:"a:1",1:"b:2"}', {"0": "a:1", "1": "b:2"}),
        ("{-1:2}", {"-1": 2}),
        ('{"a":{ 5 : {} , true : [ ] }}', {"a": {"5": {}, "true": []}}),
        ('{"offsetTable":{' + QUEUE + ":5}}", {"offsetTable": {QUEUE: 5}}),
        ("{" + QUEUE + ' : {"a":[1]}, {"x":[{}]}:2}', {QUEUE: {"a": [1]}, '{"x":[{}]}': 2}),
        ("{[1]:2}", {"[1]": 2}),
        ('{"a":"{\\"}\\\\",1:"]}"}', {"a": '{"}\\', "1": "]}"}),
        ('["tab\there"]', ["tab\there"]),
        ('["\\ud83d\\ude00","\\ude00x"]', ["😀", "\ufffdx"]),
        ("[" * 31 + "{1:2}" + "]" * 31, None),
    ],
)
def test_what_is_read(text: str, value: Json) -> None:
    read = decode_json(text.encode())
    if value is not None:
        assert read == value
        assert decode_json(memoryview(text.encode())) == value


def test_text_that_is_not_utf8() -> None:
    assert decode_json(b'{"a":"\xb1\xea"}') == {"a": "\ufffd\ufffd"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{",
        "[",
        "[1",
        "[1,",
        "[1,]",
        "[,]",
        "{1",
        "{1:",
        "{1:2",
        "{1:2,",
        "{1:2,}",
        "{1 2}",
        "{:1}",
        "{1:2}x",
        "{1:2} {}",
        "{a:1}",
        "{'a':1}",
        '{1:"a}',
        '{1:"\\x"}',
        "{1:tru}",
        "{1:" + "9" * 5000 + "}",
        "[" * 33 + "{1:2}" + "]" * 33,
        "{" * 40 + "}" * 40,
        "[" * 100_000,
        '{"a":' * 100_000,
        "{1:" + "[" * 100_000,
    ],
)
def test_refusals(text: str) -> None:
    with pytest.raises(BadBody):
        decode_json(text.encode())


def test_size_is_limited() -> None:
    assert decode_json(b'"1234"', max_size=6) == "1234"
    with pytest.raises(BadBody, match="6 bytes"):
        decode_json(b'"1234"', max_size=5)
    with pytest.raises(BadBody):
        decode_json(bytes(1 << 20) + b"1")
    blanks = b" " * MAX_LENIENT_SIZE
    assert decode_json(blanks + b"{}") == {}
    with pytest.raises(BadBody, match="fastjson"):
        decode_json(blanks + b"{1:1}")


@pytest.mark.parametrize("part", PARTS)
def test_time(part: bytes) -> None:
    """The longest body that is parsed in Python takes 0.2 s; if that were not linear, minutes."""
    text = b"{1:[" + part * ((MAX_LENIENT_SIZE - 10) // len(part)) + b"1]}"
    begun = time.thread_time()
    decode_json(text)
    assert time.thread_time() - begun < 3 * slowness()


@pytest.mark.parametrize("part", PARTS)
def test_memory(part: bytes) -> None:
    text = b"{1:[" + part * 1000 + b"1]}"
    tracemalloc.start()
    try:
        decode_json(text)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100 * len(text)


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(-1e9, 1e9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@few(200)
@given(_json)
def test_json_is_read_as_by_the_standard_library(value: Json) -> None:
    """Also behind a key that forces the lenient way."""
    for indent in (None, 1):
        text = json.dumps(value, ensure_ascii=indent is None, indent=indent)
        try:
            data = text.encode()
        except UnicodeEncodeError:
            return
        expected = json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16"))
        if "\\ud" not in text:
            assert decode_json(data) == expected
            assert decode_json(b"{0:%b}" % data) == {"0": expected}


@few(300)
@given(st.binary(max_size=40) | st.text(st.sampled_from('{}[]:," 01atrue\\'), max_size=30).map(str.encode))
def test_noise(data: bytes) -> None:
    try:
        decode_json(data)
    except BadBody:
        return


@pytest.mark.parametrize("value", [1, "1", 1.0, "0001"])
def test_numbers(value: Json) -> None:
    assert Members({"a": value}, "x").number("a") == 1


@pytest.mark.parametrize("value", [None, True, "", "-", "1.0", "a", 1.5, 1 << 63, "9" * 5000, [], {}])
def test_no_numbers(value: Json) -> None:
    with pytest.raises(BadBody, match="x: a"):
        Members({"a": value}, "x").number("a")


@pytest.mark.parametrize(("value", "truth"), [(None, False), (False, False), ("true", True), (True, True)])
def test_truth(value: Json, truth: bool) -> None:
    assert Members({"a": value}, "x").truth("a") is truth


@pytest.mark.parametrize("value", ["yes", [], {}, 2])
def test_no_truth(value: Json) -> None:
    with pytest.raises(BadBody):
        Members({"a": value}, "x").truth("a")
