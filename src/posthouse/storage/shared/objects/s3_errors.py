"""What an error of the S3 client says. The client has few kinds of errors, so most of it is in their text."""

import html
import re
from dataclasses import dataclass

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([^<]+)</Code>")
_MESSAGE = re.compile(r"<Message>([^<]+)</Message>")
_TIMEOUTS_AND_LIMITS = frozenset({408, 425, 429})
_LONGEST = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Refusal:
    status: int
    """Of HTTP; 0 if there was no answer."""
    code: str
    """S3's word for the error, such as NoSuchBucket; empty if there is none."""
    sentence: str

    @classmethod
    def of(cls, error: BaseException) -> "S3Refusal":
        # The rest is the client's own structures, with all headers of the answer.
        text = " ".join(str(error).partition("Debug source:")[0].split())
        status, code, message = _STATUS.search(text), _CODE.search(text), _MESSAGE.search(text)
        if code is not None:
            sentence = html.unescape(f"{code[1]}: {message[1]}" if message is not None else code[1])
        else:
            sentence = text.rpartition(" - ")[2] or type(error).__name__
        return cls(
            status=int(status[1]) if status is not None else 0,
            code=code[1] if code is not None else "",
            sentence=sentence[:_LONGEST],
        )

    @property
    def is_final(self) -> bool:
        """Whether only a change of the address, the bucket or the credentials can help."""
        return 400 <= self.status < 500 and self.status not in _TIMEOUTS_AND_LIMITS

    @property
    def is_of_the_bucket(self) -> bool:
        return self.code == "NoSuchBucket"

    @property
    def is_of_the_range(self) -> bool:
        return self.status == 416
