"""How log lines look: for people on a terminal, or one JSON object per line."""

import json
import logging
import sys
import time

from posthouse.model.errors import InvalidConfig

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_COLOURS = {logging.WARNING: "\x1b[33m", logging.ERROR: "\x1b[31m", logging.CRITICAL: "\x1b[1;31m"}
_PLAIN = "\x1b[0m"


class TextFormatter(logging.Formatter):
    def __init__(self, *, colour: bool) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        level = f"{record.levelname:<8}"
        if self._colour and record.levelno in _COLOURS:
            level = f"{_COLOURS[record.levelno]}{level}{_PLAIN}"
        line = f"{moment}.{int(record.msecs):03d} {level} {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def configure_logging(format: str, level: str) -> None:
    if level not in _LEVELS:
        raise InvalidConfig(f"setting log_level: {level!r} is unknown; use one of {', '.join(_LEVELS)}")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter(colour=sys.stderr.isatty()))
    logging.basicConfig(level=_LEVELS[level], handlers=[handler], force=True)
