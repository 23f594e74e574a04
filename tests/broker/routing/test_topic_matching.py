"""The trie of a topic exchange: what matches, against a naive matcher, and that it shrinks again."""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from posthouse.broker.routing.definitions import Binding
from posthouse.broker.routing.matcher import Bound
from posthouse.broker.routing.topic import TopicMatcher, TrieNode
from tests.broker.routing.naive import topic_matches, words
from tests.examples import examples


def bound(number: int, pattern: bytes) -> Bound:
    return Bound(number, Binding(source="x", destination="q", key=pattern), target=number)


def matcher_of(*patterns: bytes) -> TopicMatcher:
    matcher = TopicMatcher()
    for number, pattern in enumerate(patterns):
        matcher.add(bound(number, pattern))
    return matcher


def numbers(matcher: TopicMatcher, key: bytes) -> list[int]:
    return [each.number for each in matcher.match(key, {})]


def nodes(node: TrieNode) -> int:
    children = [*node.words.values(), node.any_word, node.any_words]
    return 1 + sum(nodes(child) for child in children if child is not None)


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        (b"", [b""], [b"a", b".", b"a.b"]),
        (b"stock.nyse", [b"stock.nyse"], [b"stock", b"stock.nyse.ibm", b"Stock.nyse", b"stock.nys"]),
        (b"*", [b"a", b"*", b"#"], [b"", b"a.b", b"."]),
        (b"#", [b"", b"a", b".", b"a.b.c"], []),
        (b"*.*", [b"a.b", b"."], [b"a", b"a.b.c"]),
        (b"a.*.c", [b"a.b.c", b"a..c", b"a.*.c"], [b"a.c", b"a.b.b.c"]),
        (b"a.#", [b"a", b"a.b", b"a.b.c", b"a."], [b"", b"b", b"ab"]),
        (b"#.z", [b"z", b"a.z", b"z.z", b"a.b.z"], [b"", b"z.a", b"az"]),
        (b"a.#.z", [b"a.z", b"a.b.z", b"a.z.z", b"a..z"], [b"a", b"z", b"a.z.b"]),
        (b"#.b.#", [b"b", b"a.b", b"b.c", b"b.b"], [b"", b"a", b"a.c"]),
        (b"#.*", [b"a", b"a.b"], [b""]),
        (b"*.#", [b"a", b"a.b"], [b""]),
        (b"#.#", [b"", b"a", b"a.b"], []),
        (b"#.*.#.*.x", [b"a.b.x", b"a.b.c.x"], [b"x", b"a.x", b"a.b.c"]),
        (b"a*", [b"a*"], [b"ab", b"a"]),
        (b"a.#b", [b"a.#b"], [b"a.b", b"a"]),
        (b"\xff.\x00.*", [b"\xff.\x00.\xfe"], [b"\xff.\x01.a"]),
    ],
)
def test_patterns(pattern: bytes, matching: list[bytes], other: list[bytes]) -> None:
    matcher = matcher_of(pattern)
    assert [key for key in matching if not numbers(matcher, key)] == []
    assert [key for key in other if numbers(matcher, key)] == []


def test_matches_come_in_the_order_of_binding() -> None:
    matcher = matcher_of(b"#", b"a.b", b"c", b"a.*", b"a.b", b"#.b", b"a.#.#", b"a.#")
    assert numbers(matcher, b"a.b") == [0, 1, 3, 4, 5, 6, 7]


some_words = st.sampled_from([b"a", b"b", b"c", b""])
keys = st.lists(some_words, max_size=7).map(b".".join)
patterns = st.lists(st.one_of(some_words, st.sampled_from([b"*", b"#", b"#"])), max_size=6).map(b".".join)


@settings(max_examples=examples(500))
@given(patterns=st.lists(patterns, max_size=12), keys=st.lists(keys, min_size=1, max_size=8))
def test_agrees_with_the_naive_matcher(patterns: list[bytes], keys: list[bytes]) -> None:
    matcher = matcher_of(*patterns)
    for key in keys:
        expected = [
            number for number, pattern in enumerate(patterns) if topic_matches(words(pattern), words(key))
        ]
        assert numbers(matcher, key) == expected, key


@given(data=st.data(), patterns=st.lists(patterns, max_size=10))
def test_what_is_removed_leaves_nothing(data: st.DataObject, patterns: list[bytes]) -> None:
    """After every removal the trie is as large as if the removed had never been there."""
    matcher = TopicMatcher()
    there = [bound(number, pattern) for number, pattern in enumerate(patterns)]
    for each in there:
        matcher.add(each)
    for each in data.draw(st.permutations(there)):
        matcher.remove(each)
        there.remove(each)
        assert nodes(matcher.root) == nodes(matcher_of(*(one.binding.key for one in there)).root)
        assert numbers(matcher, each.binding.key) == [
            one.number for one in there if topic_matches(words(one.binding.key), words(each.binding.key))
        ]
    assert matcher.root.is_empty
