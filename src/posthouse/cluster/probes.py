"""`GET /health/live` on a standby: whether this process lives is answered here, and not by the holder."""

_BEGINNINGS = (b"GET /health/live ", b"GET /health/live?")
_LONGEST = len(_BEGINNINGS[0])
_END_OF_HEAD = b"\r\n\r\n"
_MOST_HEAD = 8 * 1024
_BODY = b'{"status":"ok"}'
LIVE_ANSWER = (
    b"HTTP/1.1 200 OK\r\nserver: posthouse\r\ncontent-type: application/json\r\ncache-control: no-store\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%s" % (len(_BODY), _BODY)
)


class Probe:
    """Tells a probe by the first bytes of a connection."""

    def is_one(self, received: bytearray) -> bool | None:
        """None until more bytes are needed to know, and until all of a probe has come."""
        if len(received) < _LONGEST:
            return None if any(each.startswith(received) for each in _BEGINNINGS) else False
        if not received.startswith(_BEGINNINGS):
            return False
        if _END_OF_HEAD in received:
            return True
        return None if len(received) < _MOST_HEAD else False
