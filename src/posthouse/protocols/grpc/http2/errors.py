"""What a client does wrong: to one stream, or to the whole connection."""

from enum import IntEnum


class ErrorCode(IntEnum):
    """RFC 9113, section 7."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


class Http2Error(Exception):
    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(f"{text} ({code.name})")
        self.code = code
        self.text = text


class ConnectionFault(Http2Error):
    """The connection ends with GOAWAY."""


class StreamFault(Http2Error):
    """The stream ends with RST_STREAM; the connection goes on."""
