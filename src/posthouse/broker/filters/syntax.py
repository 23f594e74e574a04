"""A parsed expression: conditions, and the operands that they compare."""

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import TypeAlias

from posthouse.broker.filters.patterns import Pattern


class Comparator(StrEnum):
    EQUAL = "="
    UNEQUAL = "<>"
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="

    @property
    def orders(self) -> bool:
        """Whether it needs to know which operand is greater. Only numbers have an order."""
        return self not in (Comparator.EQUAL, Comparator.UNEQUAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal:
    value: str | int | float | bool


Operand: TypeAlias = Property | Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    comparator: Comparator
    left: Operand
    right: Operand


class TextRelation(Enum):
    CONTAINS = "CONTAINS"
    STARTSWITH = "STARTSWITH"
    ENDSWITH = "ENDSWITH"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextCondition:
    property: Property
    relation: TextRelation
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    property: Property
    texts: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Likeness:
    property: Property
    pattern: Pattern


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    """IS NULL."""

    property: Property


@dataclass(frozen=True, slots=True, kw_only=True)
class Negation:
    condition: "Condition"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conjunction:
    conditions: "tuple[Condition, ...]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Disjunction:
    conditions: "tuple[Condition, ...]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    value: bool


Condition: TypeAlias = (
    Comparison
    | TextCondition
    | Membership
    | Likeness
    | Absence
    | Negation
    | Conjunction
    | Disjunction
    | Constant
)
