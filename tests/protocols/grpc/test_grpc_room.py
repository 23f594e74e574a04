"""Room for large messages."""

from functools import partial

from posthouse.protocols.grpc.room import Room


def test_room_is_given_in_order_and_one_always_has_some() -> None:
    granted: list[str] = []
    room = Room(100)
    for owner, size in (("a", 500), ("b", 60), ("c", 60), ("d", 10)):
        room.ask(owner, size, partial(granted.append, owner))
    assert granted == ["a"] and room.is_awaited
    room.leave("b")  # before its turn
    room.leave("a")
    assert granted == ["a", "c", "d"] and not room.is_awaited
    room.ask("e", 31, partial(granted.append, "e"))
    assert room.is_awaited
    room.leave("d")
    assert granted[-1] == "e"
    room.leave("c")
    room.leave("e")
    room.leave("nothing")
    assert room._used == 0
