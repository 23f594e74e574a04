"""The types of table values by name, and numbers that remember which of them they were.

Python has one integer and one float where AMQP has nine numbers. Which one it was matters only for what a
refusal says, so only the arguments of declarations and consumers are read like this.
"""

from typing import Final

TYPE_NAMES: Final = {
    ord("t"): "bool",
    ord("b"): "byte",
    ord("B"): "unsignedbyte",
    ord("s"): "short",
    ord("u"): "unsignedshort",
    ord("I"): "signedint",
    ord("i"): "unsignedint",
    ord("l"): "long",
    ord("L"): "long",
    ord("f"): "float",
    ord("d"): "double",
    ord("D"): "decimal",
    ord("S"): "longstr",
    ord("x"): "binary",
    ord("A"): "array",
    ord("F"): "table",
    ord("T"): "timestamp",
    ord("V"): "void",
}
"""As RabbitMQ calls them, by the byte that stands before a value."""


class Byte(int):
    __slots__ = ()


class UnsignedByte(int):
    __slots__ = ()


class Short(int):
    __slots__ = ()


class UnsignedShort(int):
    __slots__ = ()


class SignedInt(int):
    __slots__ = ()


class UnsignedInt(int):
    __slots__ = ()


class Float(float):
    __slots__ = ()


TYPED_NUMBERS: Final[dict[int, type[int] | type[float]]] = {
    ord("b"): Byte,
    ord("B"): UnsignedByte,
    ord("s"): Short,
    ord("u"): UnsignedShort,
    ord("I"): SignedInt,
    ord("i"): UnsignedInt,
    ord("f"): Float,
}
"""All but long and double, which plain numbers stand for."""
