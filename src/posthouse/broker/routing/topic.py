"""The topic exchange: a binding's key is a pattern over the words of the routing key.

Words are separated by dots; an empty key has no words. In a pattern `*` stands for exactly one word and `#`
for zero or more words.

The patterns form a trie with a word per edge. A lookup follows all branches at once: after every word there
is a set of nodes that match so far, each of them once. So the worst pattern costs nodes times words, while
backtracking can take exponential time.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import ClassVar

from posthouse.broker.routing.matcher import Bound, RoutingInputs, by_number

ANY_WORD = b"*"
ANY_WORDS = b"#"


class TrieNode:
    """One node of the trie: the patterns that begin with the same words."""

    __slots__ = ("any_word", "any_words", "bound", "repeats", "words")

    def __init__(self, repeats: bool = False) -> None:
        self.words: dict[bytes, TrieNode] = {}
        self.any_word: TrieNode | None = None
        self.any_words: TrieNode | None = None
        self.repeats = repeats
        """The node was reached by `#`, and matches any further words."""
        self.bound: dict[Bound, None] = {}

    @property
    def is_empty(self) -> bool:
        return not (self.bound or self.words or self.any_word or self.any_words)

    def behind(self, word: bytes) -> "TrieNode":
        """The child for this word of a pattern, created if it is missing."""
        if word == ANY_WORD:
            if self.any_word is None:
                self.any_word = TrieNode()
            return self.any_word
        if word == ANY_WORDS:
            if self.any_words is None:
                self.any_words = TrieNode(repeats=True)
            return self.any_words
        if word not in self.words:
            self.words[word] = TrieNode()
        return self.words[word]

    def drop(self, word: bytes) -> None:
        if word == ANY_WORD:
            self.any_word = None
        elif word == ANY_WORDS:
            self.any_words = None
        else:
            del self.words[word]


class TopicMatcher:
    reads: ClassVar[RoutingInputs] = RoutingInputs.KEY

    def __init__(self) -> None:
        self.root = TrieNode()

    def add(self, bound: Bound) -> None:
        node = self.root
        for word in _pattern(bound.binding.key):
            node = node.behind(word)
        node.bound[bound] = None

    def remove(self, bound: Bound) -> None:
        node = self.root
        path = []
        for word in _pattern(bound.binding.key):
            path.append((node, word))
            node = node.behind(word)
        del node.bound[bound]
        while path and node.is_empty:
            node, word = path.pop()
            node.drop(word)

    def match(self, key: bytes, headers: Mapping[str, object]) -> Collection[Bound]:
        ends = [node.bound for node in self._walk(key) if node.bound]
        if len(ends) == 1:
            return ends[0]
        return sorted((bound for end in ends for bound in end), key=by_number)

    def _walk(self, key: bytes) -> Collection[TrieNode]:
        """The nodes that the whole key leads to. A dict is a set that keeps its order."""
        root = self.root
        here: dict[TrieNode, None] = {root: None}
        if root.any_words is not None:
            here[root.any_words] = None
        for word in _words(key):
            there: dict[TrieNode, None] = {}
            for node in here:
                if node.repeats:
                    there[node] = None
                for child in (node.words.get(word), node.any_word):
                    if child is not None:
                        there[child] = None
                        if child.any_words is not None:  # `#` may match no word at all
                            there[child.any_words] = None
            if not there:
                return ()
            here = there
        return here


def _words(key: bytes) -> list[bytes]:
    return key.split(b".") if key else []


def _pattern(key: bytes) -> Iterator[bytes]:
    """The words of a pattern. A `#` behind another one has no effect and is left out."""
    before = b""
    for word in _words(key):
        if word != ANY_WORDS or before != ANY_WORDS:
            yield word
        before = word
