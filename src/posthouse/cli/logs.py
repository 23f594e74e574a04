"""Log formats: text for a terminal, or one JSON object per line.

Log messages may contain names that clients chose. A message is one line of visible characters, no longer than
`_LONGEST`. Lines that clients can cause are rate limited: see `FloodFilter`.
"""

import json
import logging
import sys
import time
from dataclasses import dataclass

from posthouse.model.errors import InvalidConfig
from posthouse.model.excerpts import excerpt, printable

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_COLOURS = {logging.WARNING: "\x1b[33m", logging.ERROR: "\x1b[31m", logging.CRITICAL: "\x1b[1;31m"}
_PLAIN = "\x1b[0m"
_LONGEST = 2000
_FLOODED = "posthouse.protocols."
_LINES = 100
_SECONDS = 10


class TextFormatter(logging.Formatter):
    def __init__(self, *, colour: bool) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        level = f"{record.levelname:<8}"
        if self._colour and record.levelno in _COLOURS:
            level = f"{_COLOURS[record.levelno]}{level}{_PLAIN}"
        line = f"{moment}.{int(record.msecs):03d} {level} {_message(record)}"
        if not record.exc_info:
            return line
        # The text of an error may quote clients, too.
        return "\n".join([line, *map(printable, self.formatException(record.exc_info).split("\n"))])


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


class FloodFilter(logging.Filter):
    """Rate limit for lines that clients can cause, so that they cannot fill the disk.

    Of each kind of protocol line, `_LINES` pass in `_SECONDS`. The last of them announces that others are
    suppressed, and the first of the next interval reports their number.
    """

    def __init__(self) -> None:
        super().__init__()
        self._intervals: dict[tuple[str, str], _Interval] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.ERROR or not record.name.startswith(_FLOODED):
            return True
        kind = (record.name, str(record.msg))
        interval = self._intervals.get(kind)
        left_out = 0
        if interval is None or record.created >= interval.ends_at:
            left_out = 0 if interval is None else interval.left_out
            interval = self._intervals[kind] = _Interval(record.created + _SECONDS)
        if not interval.lines_left:
            interval.left_out += 1
            return False
        interval.lines_left -= 1
        if left_out:
            _add(record, f" ({left_out} more lines like this were left out)")
        if not interval.lines_left:
            _add(record, f" (more lines like this are left out for up to {_SECONDS} s)")
        return True


@dataclass(slots=True)
class _Interval:
    ends_at: float
    lines_left: int = _LINES
    left_out: int = 0


def _add(record: logging.LogRecord, text: str) -> None:
    record.msg, record.args = excerpt(record.getMessage(), _LONGEST // 2) + text, ()


def _message(record: logging.LogRecord) -> str:
    return excerpt(printable(record.getMessage()), _LONGEST)


def configure_logging(format: str, level: str) -> None:
    if level not in _LEVELS:
        raise InvalidConfig(f"setting log_level: {level!r} is unknown; use one of {', '.join(_LEVELS)}")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter(colour=sys.stderr.isatty()))
    handler.addFilter(FloodFilter())
    logging.basicConfig(level=_LEVELS[level], handlers=[handler], force=True)
