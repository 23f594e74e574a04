"""The one table from the broker's errors to reply codes."""

from collections.abc import Iterator

import pytest

from posthouse.model import errors
from posthouse.model.errors import PosthouseError
from posthouse.protocols.amqp.errors import Refused, ReplyCode, speaking_of, translated


def kinds(kind: type[PosthouseError]) -> Iterator[type[PosthouseError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from kinds(each)


def made(kind: type[PosthouseError]) -> PosthouseError:
    """Without its own arguments."""
    error = kind.__new__(kind)
    Exception.__init__(error, "why")
    return error


def test_every_error_has_a_code() -> None:
    """Also those that other tests have imported, so there is no test for each: workers would find different
    ones."""
    found = sorted(set(kinds(PosthouseError)), key=str)
    assert errors.UnknownQueue in found
    for kind in found:
        refusal = translated(made(kind))
        assert refusal.text == f"{refusal.code.name} - why", kind


@pytest.mark.parametrize(
    ("kind", "code", "text"),
    [
        (errors.UnknownQueue, 404, "NOT_FOUND - no queue 'q' in vhost '/'"),
        (errors.UnknownExchange, 404, "NOT_FOUND - no queue 'q' in vhost '/'"),
        (errors.InUse, 406, "PRECONDITION_FAILED - queue 'q' in vhost '/' in use"),
        (errors.NotEmpty, 406, "PRECONDITION_FAILED - queue 'q' in vhost '/' not empty"),
        (errors.AccessRefused, 403, "ACCESS_REFUSED - why"),
        (errors.DefinitionMismatch, 406, "PRECONDITION_FAILED - why"),
        (errors.RecordTooLarge, 406, "PRECONDITION_FAILED - why"),
        (errors.StorageFull, 506, "RESOURCE_ERROR - why"),
        (PosthouseError, 541, "INTERNAL_ERROR - why"),
    ],
)
def test_the_subject_is_named_where_it_is_known(kind: type[PosthouseError], code: int, text: str) -> None:
    with pytest.raises(Refused) as refused, speaking_of("queue 'q' in vhost '/'"):
        raise made(kind)
    assert (refused.value.code, refused.value.text) == (code, text)


@pytest.mark.parametrize("code", ReplyCode)
def test_who_is_closed(code: ReplyCode) -> None:
    assert Refused(code, "").closes_channel_only == (code in (311, 312, 313, 403, 404, 405, 406))


def test_a_text_is_cut_where_a_frame_has_no_room_for_it() -> None:
    text = Refused(ReplyCode.NOT_FOUND, "ü" * 300).text
    assert len(text.encode()) in (254, 255)
    assert text.endswith("ü")
