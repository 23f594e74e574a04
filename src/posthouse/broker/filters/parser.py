"""Expressions to conditions.

disjunction  = conjunction { OR conjunction }
conjunction  = negation { AND negation }
negation     = { NOT } predicate
predicate    = operand [ comparator operand ]
             | property IS [NOT] NULL
             | property [NOT] BETWEEN operand AND operand
             | property [NOT] IN ( text { , text } )
             | property [NOT] LIKE text [ ESCAPE text ]
             | property [NOT] CONTAINS text      and likewise STARTSWITH and ENDSWITH
operand      = property | [+|-] number | text | TRUE | FALSE | ( disjunction )
"""

from typing import NoReturn, TypeAlias

from posthouse.broker.filters.limits import (
    MAX_CONDITIONS,
    MAX_DEPTH,
    MAX_PATTERN_LENGTH,
    MAX_PATTERNS,
    MAX_SEARCHES,
    check_length,
)
from posthouse.broker.filters.patterns import WrongEscape, parse_pattern
from posthouse.broker.filters.syntax import (
    Absence,
    Comparator,
    Comparison,
    Condition,
    Conjunction,
    Constant,
    Disjunction,
    Likeness,
    Literal,
    Membership,
    Negation,
    Operand,
    Property,
    TextCondition,
    TextRelation,
)
from posthouse.broker.filters.tokens import Token, TokenKind, tokens
from posthouse.model.errors import InvalidFilter

Parsed: TypeAlias = Condition | Operand
"""What stands in parentheses may be either: `(a) = 5`, `(a = 5)`."""

_COMPARATORS = {str(comparator): comparator for comparator in Comparator}
_RELATIONS = {relation.value: relation for relation in TextRelation}
_CONTINUATION = "AND, OR"


def parse(expression: str) -> Condition:
    check_length(expression)
    return _Parser(expression).parse()


class _Parser:
    def __init__(self, expression: str) -> None:
        self._tokens = tokens(expression)
        self._token = next(self._tokens)
        self._depth = 0
        self._conditions = 0
        self._patterns = 0
        self._searches = 0

    def parse(self) -> Condition:
        condition = self._as_condition(self._disjunction())
        if self._token.kind is not TokenKind.END:
            self._fail(f"{_CONTINUATION} or the end")
        return condition

    def _disjunction(self) -> Parsed:
        first = self._conjunction()
        if not self._is("OR"):
            return first
        conditions = [self._as_condition(first)]
        while self._accept("OR"):
            conditions.append(self._as_condition(self._conjunction()))
        return Disjunction(conditions=tuple(conditions))

    def _conjunction(self) -> Parsed:
        first = self._negation()
        if not self._is("AND"):
            return first
        conditions = [self._as_condition(first)]
        while self._accept("AND"):
            conditions.append(self._as_condition(self._negation()))
        return Conjunction(conditions=tuple(conditions))

    def _negation(self) -> Parsed:
        if not self._is("NOT"):
            return self._predicate()
        negative = False
        while self._accept("NOT"):
            negative = not negative
        condition = self._as_condition(self._predicate())
        return Negation(condition=condition) if negative else condition

    def _predicate(self) -> Parsed:
        self._conditions += 1
        if self._conditions > MAX_CONDITIONS:
            self._fail(f"at most {MAX_CONDITIONS} conditions")
        left = self._operand()
        if not isinstance(left, Property | Literal):
            return left
        if self._token.text in _COMPARATORS:
            return self._comparison(left)
        if self._accept("IS"):
            return self._null(left)
        negative = self._accept("NOT")
        condition = self._named_predicate(left)
        if condition is None:
            if negative:
                self._fail("BETWEEN, IN, LIKE, CONTAINS, STARTSWITH or ENDSWITH after NOT")
            return left
        return Negation(condition=condition) if negative else condition

    def _named_predicate(self, left: Operand) -> Condition | None:
        operator = self._token
        name = operator.text.upper() if operator.kind in (TokenKind.KEYWORD, TokenKind.NAME) else ""
        if name == "BETWEEN":
            self._advance()
            return self._between(left)
        if name in _RELATIONS:
            self._advance()
            return self._text_condition(self._property(left, operator), _RELATIONS[name])
        if name == "IN":
            self._advance()
            return Membership(property=self._property(left, operator), texts=self._texts())
        if name == "LIKE":
            self._advance()
            return self._likeness(self._property(left, operator))
        return None

    def _comparison(self, left: Operand) -> Comparison:
        operator = self._advance()
        comparator = _COMPARATORS[operator.text]
        if comparator.orders and not _may_be_number(left):
            raise InvalidFilter(operator.position, "= or <>, as only numbers have an order", str(operator))
        right = self._compared(with_order=comparator.orders)
        if _never_comparable(left, right):
            raise InvalidFilter(operator.position, "operands of one kind", "a number beside TRUE or FALSE")
        return Comparison(comparator=comparator, left=left, right=right)

    def _null(self, left: Operand) -> Condition:
        negative = self._accept("NOT")
        operator = self._token
        if not self._accept("NULL"):
            self._fail("NULL" if negative else "NULL or NOT NULL")
        absence = Absence(property=self._property(left, operator))
        return Negation(condition=absence) if negative else absence

    def _between(self, left: Operand) -> Condition:
        if not _may_be_number(left):
            self._fail("a number or a property before BETWEEN")
        low = self._compared(with_order=True)
        if not self._accept("AND"):
            self._fail("AND and the upper bound of BETWEEN")
        high = self._compared(with_order=True)
        return Conjunction(
            conditions=(
                Comparison(comparator=Comparator.GREATER_OR_EQUAL, left=left, right=low),
                Comparison(comparator=Comparator.LESS_OR_EQUAL, left=left, right=high),
            )
        )

    def _text_condition(self, left: Property, relation: TextRelation) -> TextCondition:
        self._searches += relation is TextRelation.CONTAINS
        if self._searches > MAX_SEARCHES:
            self._fail(f"at most {MAX_SEARCHES} CONTAINS")
        return TextCondition(property=left, relation=relation, text=self._text())

    def _likeness(self, left: Property) -> Likeness:
        self._patterns += 1
        if self._patterns > MAX_PATTERNS:
            self._fail(f"at most {MAX_PATTERNS} LIKE")
        token = self._token
        text = self._text()
        if len(text) > MAX_PATTERN_LENGTH:
            raise InvalidFilter(
                token.position,
                f"a pattern of at most {MAX_PATTERN_LENGTH} characters",
                f"{len(text)} characters",
            )
        escape = None
        if self._token.kind is TokenKind.NAME and self._token.text.upper() == "ESCAPE":
            self._advance()
            escape_token = self._token
            escape = self._text()
            if len(escape) != 1:
                raise InvalidFilter(escape_token.position, "a text of one character", str(escape_token))
        try:
            return Likeness(property=left, pattern=parse_pattern(text, escape))
        except WrongEscape:
            expected = f"%, _ or {escape} after each escape character {escape} of the pattern"
            raise InvalidFilter(token.position, expected, str(token)) from None

    def _compared(self, *, with_order: bool) -> Operand:
        """The operand on the right of a comparison."""
        token = self._token
        if self._is("NULL"):
            self._fail("a value or a property (IS NULL tells whether a property is missing)")
        operand = self._operand()
        if not isinstance(operand, Property | Literal):
            raise InvalidFilter(token.position, "a value or a property", "a condition")
        if with_order and not _may_be_number(operand):
            raise InvalidFilter(
                token.position, "a number or a property, as only numbers have an order", str(token)
            )
        return operand

    def _operand(self) -> Parsed:
        token = self._token
        if token.kind is TokenKind.NAME:
            self._advance()
            return Property(name=token.text)
        if token.kind in (TokenKind.NUMBER, TokenKind.TEXT):
            self._advance()
            return Literal(value=token.value)
        if self._accept("TRUE"):
            return Literal(value=True)
        if self._accept("FALSE"):
            return Literal(value=False)
        if token.kind is TokenKind.SYMBOL and token.text in ("+", "-"):
            return self._signed()
        if self._accept("("):
            return self._parenthesised()
        return self._fail("a property, a value, NOT or (")

    def _signed(self) -> Literal:
        sign = self._advance().text
        token = self._token
        if not isinstance(token.value, int | float):
            self._fail(f"a number after {sign}")
        self._advance()
        return Literal(value=-token.value if sign == "-" else token.value)

    def _parenthesised(self) -> Parsed:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail(f"parentheses nested at most {MAX_DEPTH} deep")
        inner = self._disjunction()
        if not self._accept(")"):
            self._fail(f"{_CONTINUATION} or )" if not isinstance(inner, Literal) else "an operator or )")
        self._depth -= 1
        return inner

    def _texts(self) -> frozenset[str]:
        if not self._accept("("):
            self._fail("( and a list of texts")
        texts = {self._text()}
        while self._accept(","):
            texts.add(self._text())
        if not self._accept(")"):
            self._fail(", or )")
        return frozenset(texts)

    def _text(self) -> str:
        value = self._token.value
        if self._token.kind is not TokenKind.TEXT or not isinstance(value, str):
            self._fail("a text such as 'abc'")
        self._advance()
        return value

    def _property(self, operand: Operand, operator: Token) -> Property:
        if not isinstance(operand, Property):
            raise InvalidFilter(operator.position, f"a property before {operator}", "a value")
        return operand

    def _as_condition(self, parsed: Parsed) -> Condition:
        """A property alone is compared with TRUE."""
        if isinstance(parsed, Property):
            return Comparison(comparator=Comparator.EQUAL, left=parsed, right=Literal(value=True))
        if isinstance(parsed, Literal):
            if isinstance(parsed.value, bool):
                return Constant(value=parsed.value)
            self._fail("a comparison after the value")
        return parsed

    def _is(self, text: str) -> bool:
        return self._token.text == text and self._token.kind in (TokenKind.KEYWORD, TokenKind.SYMBOL)

    def _accept(self, text: str) -> bool:
        if not self._is(text):
            return False
        self._advance()
        return True

    def _advance(self) -> Token:
        token = self._token
        self._token = next(self._tokens)
        return token

    def _fail(self, expected: str) -> NoReturn:
        raise InvalidFilter(self._token.position, expected, str(self._token))


def _may_be_number(operand: Operand) -> bool:
    return isinstance(operand, Property) or _is_number(operand)


def _is_number(operand: Operand) -> bool:
    return isinstance(operand, Literal) and not isinstance(operand.value, str | bool)


def _is_truth(operand: Operand) -> bool:
    return isinstance(operand, Literal) and isinstance(operand.value, bool)


def _never_comparable(left: Operand, right: Operand) -> bool:
    return (_is_number(left) and _is_truth(right)) or (_is_truth(left) and _is_number(right))
