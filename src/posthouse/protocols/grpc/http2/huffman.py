"""Huffman strings of HPACK, a byte at a time. The code is the library's table.

The steps of the automaton (a node of the tree, and eight bits) are made as they are needed: all 65,536 would
take half a second at the start, and texts use a small part of them.
"""

from typing import Final

from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH

_EOS: Final = 256
_Children = list[int | None]
"""Of one node: the number of a node, or -1 - symbol."""


class BadHuffman(Exception):
    pass


def _tree() -> list[_Children]:
    nodes: list[_Children] = [[None, None]]
    for symbol, (code, length) in enumerate(zip(REQUEST_CODES, REQUEST_CODES_LENGTH, strict=True)):
        node = 0
        for shift in range(length - 1, 0, -1):
            bit = code >> shift & 1
            child = nodes[node][bit]
            if child is None:
                nodes.append([None, None])
                child = nodes[node][bit] = len(nodes) - 1
            node = child
        nodes[node][code & 1] = -1 - symbol
    return nodes


_NODES: Final = _tree()


def _padded() -> frozenset[int]:
    """States in which a string may end: at most seven bits of padding, all of them 1."""
    found = {0}
    node = 0
    for _ in range(7):
        child = _NODES[node][1]
        assert child is not None and child > 0
        found.add(child)
        node = child
    return frozenset(each << 8 for each in found)


_ENDS: Final = _padded()
_steps: dict[int, tuple[int, bytes]] = {}
"""Node << 8 | byte: the next node << 8, and the symbols on the way. At most 65,536."""


def _step(key: int) -> tuple[int, bytes]:
    node, byte = key >> 8, key & 0xFF
    symbols = bytearray()
    for shift in range(7, -1, -1):
        child = _NODES[node][byte >> shift & 1]
        if child is None or child == -1 - _EOS:
            raise BadHuffman
        if child < 0:
            symbols.append(-1 - child)
            node = 0
        else:
            node = child
    step = _steps[key] = (node << 8, bytes(symbols))
    return step


def decode_huffman(data: bytes) -> bytes:
    """Raises BadHuffman."""
    state = 0
    steps = _steps
    symbols = []
    for byte in data:
        try:
            state, found = steps[state | byte]
        except KeyError:
            state, found = _step(state | byte)
        symbols.append(found)
    if state not in _ENDS:
        raise BadHuffman
    return b"".join(symbols)
