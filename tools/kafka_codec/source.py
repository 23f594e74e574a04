"""Python source under construction."""

from collections.abc import Iterator
from contextlib import contextmanager

FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float64": "d",
    "uuid": "16s",
}

_SIZES = {"?": 1, "b": 1, "h": 2, "i": 4, "q": 8, "B": 1, "H": 2, "I": 4, "Q": 8, "d": 8, "16s": 16, "x": 1}
_LETTERS = {"?": "t", "16s": "u"}


def width(codes: list[str]) -> int:
    return sum(_SIZES[code] for code in codes)


_TAKEN = {
    "buf", "chunks", "end", "error", "item", "left", "marker", "n", "out", "pack", "pos", "request",
    "response", "size", "tag", "tag_end", "tagged", "tags", "text", "unpack_from", "uvarint",
}  # fmt: skip


class Locals:
    """Names for the local variables of one function: those of fields give way to those of structs."""

    def __init__(self, structs: set[str]) -> None:
        self._taken = _TAKEN | structs

    def name(self, wanted: str) -> str:
        while wanted in self._taken:
            wanted += "_"
        return wanted

    def unique(self, wanted: str) -> str:
        name = self.name(wanted)
        self._taken.add(name)
        return name


class Source:
    """Indented lines, with the precompiled structs that they mention."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.structs: dict[str, str] = {}
        self._indent = 0

    def line(self, text: str = "") -> None:
        self.lines.append("    " * self._indent + text if text else "")

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        self.line(opening)
        self._indent += 1
        yield
        self._indent -= 1

    def unpack(self, codes: list[str]) -> str:
        return self._struct("unpack", codes, "unpack_from")

    def pack(self, codes: list[str]) -> str:
        return self._struct("pack", codes, "pack")

    def _struct(self, verb: str, codes: list[str], method: str) -> str:
        name = f"_{verb}_" + "".join(_LETTERS.get(code, code) for code in codes)
        self.structs[name] = f'Struct(">{"".join(codes)}").{method}'
        return name
