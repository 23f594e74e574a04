"""Characters that are hard to type in a shell: \\t, \\n, \\r, \\0, \\xNN and \\\\, in the text of options."""

import re

_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|([ntr0\\]))")
_MEANINGS = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


def unescaped(text: str) -> bytes:
    """Other backslashes stay as they are."""
    done, parts = 0, []
    for found in _ESCAPE.finditer(text):
        parts += [text[done : found.start()].encode(), _meaning(found)]
        done = found.end()
    return b"".join([*parts, text[done:].encode()])


def _meaning(found: re.Match[str]) -> bytes:
    return bytes.fromhex(found[1]) if found[1] else _MEANINGS[found[2]]
