import pytest

from posthouse.broker.filters.limits import (
    MAX_CONDITIONS,
    MAX_DEPTH,
    MAX_LENGTH,
    MAX_NUMBER_LENGTH,
    MAX_PATTERN_LENGTH,
    MAX_PATTERNS,
    MAX_SEARCHES,
)
from posthouse.broker.filters.sql import compile_sql
from posthouse.model.errors import InvalidFilter

MESSAGE = {
    "a": "10",
    "b": "abc",
    "price": "12.50",
    "id": "9007199254740993",
    "debt": "-9007199254740993",
    "vip": "true",
    "hidden": "FALSE",
    "empty": "",
    "quote": "it's",
    "rate": "50%",
    "file": "a_b",
    "order.country": "DE",
    "$key_1": "k",
    "größe": "5",
    "like": "x",
}


def matches(expression: str, tag: str | None = "blue") -> bool:
    return compile_sql(expression).matches(MESSAGE, tag)


TRUE = [
    # numbers
    "a = 10",
    "a = 10.0",
    "a = 1e1",
    "a=10",
    "a <> 11",
    "a < 11",
    "a <= 10",
    "a > 9.99",
    "a >= 10",
    "a > -5",
    "a > - 5",
    "a < +11",
    "price = 12.5",
    "price > .5",
    "price > 5.",
    "a = 10L",
    "10 = a",
    "9 < a",
    "id = 9007199254740993",
    "id <> 9007199254740992",
    "debt = -9007199254740993",
    "debt < -9007199254740992",
    "a < price",
    "a BETWEEN 10 AND 10",
    "a between 1 and price",
    "a NOT BETWEEN 11 AND 20",
    "a NOT BETWEEN 20 AND 1",
    "5 BETWEEN 1 AND a",
    # texts
    "b = 'abc'",
    "b <> 'ABC'",
    "'abc' = b",
    "quote = 'it''s'",
    "empty = ''",
    "b = b",
    "a <> '10.0'",
    "b IN ('x', 'abc')",
    "b NOT IN ('x')",
    "b in ('abc')",
    "a IN ('10')",
    "b CONTAINS 'b'",
    "b STARTSWITH 'ab'",
    "b ENDSWITH 'bc'",
    "b contains 'abc'",
    "b CONTAINS ''",
    "b NOT CONTAINS 'x'",
    "b NOT STARTSWITH 'b'",
    "b NOT ENDSWITH 'b'",
    "b LIKE 'abc'",
    "b LIKE 'a%'",
    "b LIKE '%c'",
    "b LIKE '%b%'",
    "b LIKE '_b_'",
    "b NOT LIKE 'A%'",
    "b LIKE '%'",
    "rate LIKE '%!%' ESCAPE '!'",
    "file LIKE 'a!_b' escape '!'",
    "b NOT LIKE 'a!_c' ESCAPE '!'",
    # truth
    "vip = TRUE",
    "vip",
    "hidden = false",
    "NOT hidden",
    "vip <> FALSE",
    "hidden <> vip",
    "TRUE = vip",
    "(vip)",
    "TRUE",
    "NOT FALSE",
    "1 = 1",
    "'5.0' = 5",
    "5 = '5.0'",
    "'a' <> 'b'",
    "TRUE = 'true'",
    "1 < 2",
    # missing
    "missing IS NULL",
    "a IS NOT NULL",
    "NOT a IS NULL",
    "empty IS NOT NULL",
    "NOT (missing IS NOT NULL)",
    # logic
    "a = 1 OR b = 'abc'",
    "a = 10 AND b = 'abc'",
    "NOT a = 1",
    "NOT NOT a = 10",
    "NOT (a = 1 AND b = 'abc')",
    "a = 10 OR a = 1 AND b = 'x'",
    "(a) = (10)",
    "a = 1 or not (b = 'x' or missing = 5) or a = 10",
    "missing = 1 OR a = 10",
    "NOT (missing = 1 AND a = 1)",
    # names
    "TAGS = 'blue'",
    "TAGS IN ('red', 'blue')",
    "TAGS IS NOT NULL",
    "TAGS LIKE 'b%'",
    "TAGS <> b",
    "order.country = 'DE'",
    "$key_1 = 'k'",
    "größe = 5",
    "like = 'x'",
    "like like 'x'",
    # space
    "\ta\n=\r\n10\f",
    "a -- 5\n= 10",
    "a /* 5 */ = /**/ 10 -- end",
]

FALSE = [
    "a = 11",
    "a <> 10",
    "a < 10",
    "a > 10",
    "id = 9007199254740992",
    "a BETWEEN 11 AND 20",
    "a BETWEEN 20 AND 1",
    "a NOT BETWEEN 1 AND 10",
    "price < a",
    "5 BETWEEN 6 AND a",
    "b = 'ABC'",
    "b <> 'abc'",
    "a = '10.0'",
    "b IN ('ABC', 'ab')",
    "b NOT IN ('abc')",
    "b <> b",
    "b CONTAINS 'B'",
    "b STARTSWITH 'b'",
    "b ENDSWITH 'b'",
    "b NOT CONTAINS 'b'",
    "b NOT CONTAINS ''",
    "b LIKE 'b%'",
    "b LIKE 'ab'",
    "b LIKE '_b'",
    "b LIKE 'ABC'",
    "b NOT LIKE '%b%'",
    "rate LIKE '!%' ESCAPE '!'",
    "vip = FALSE",
    "NOT vip",
    "hidden",
    "FALSE",
    "NOT TRUE",
    "1 = 2",
    "2 < 1",
    "'a' = 'b'",
    "vip = 'TRUE'",
    "missing IS NOT NULL",
    "a IS NULL",
    "empty IS NULL",
    "a = 10 AND b = 'x'",
    "(a = 10 OR a = 1) AND b = 'x'",
    "NOT a = 10",
    "NOT (a = 10 OR b = 'x')",
    "TAGS = 'red'",
    "TAGS IS NULL",
]

UNKNOWN = [
    "missing = 1",
    "missing <> 1",
    "missing < 1",
    "missing = 'x'",
    "missing = TRUE",
    "missing",
    "missing = b",
    "b = missing",
    "missing < a",
    "a < missing",
    "missing BETWEEN 1 AND 2",
    "a BETWEEN missing AND 20",
    "missing IN ('x')",
    "missing LIKE '%'",
    "missing CONTAINS ''",
    "missing STARTSWITH ''",
    "missing ENDSWITH ''",
    "b = 1",
    "b <> 1",
    "b < 1",
    "b < price",
    "empty = 0",
    "b BETWEEN 1 AND 2",
    "b = TRUE",
    "a = TRUE",
    "b",
    "'abc' = 1",
    "'x' = TRUE",
    "missing = 1 AND a = 10",
    "missing = 1 OR a = 1",
    "tags IN ('blue')",
    "tags = 'blue'",
    "A = 10",
    "Größe = 5",
]


@pytest.mark.parametrize("expression", TRUE)
def test_true(expression: str) -> None:
    assert matches(expression)
    assert not matches(f"NOT ({expression}\n)")


@pytest.mark.parametrize("expression", FALSE)
def test_false(expression: str) -> None:
    assert not matches(expression)
    assert matches(f"NOT ({expression})")


@pytest.mark.parametrize("expression", UNKNOWN)
def test_unknown_is_not_delivered_and_neither_is_its_negation(expression: str) -> None:
    assert not matches(expression)
    assert not matches(f"NOT ({expression})")
    assert matches(f"({expression}) OR TRUE")
    assert matches(f"NOT (({expression}) AND FALSE)")


@pytest.mark.parametrize(
    "expression", ["TAGS = 'blue'", "TAGS <> 'blue'", "NOT TAGS IN ('blue')", "TAGS = b", "TAGS IS NOT NULL"]
)
def test_without_a_tag(expression: str) -> None:
    assert not compile_sql(expression).matches({"TAGS": "blue", "b": "blue"}, None)
    assert compile_sql("TAGS IS NULL").matches({"TAGS": "blue"}, None)


WRONG = [
    ("", 1, "a property, a value, NOT or (", "the end"),
    ("a >", 4, "a property, a value, NOT or (", "the end"),
    ("a = 5 b", 7, "AND, OR or the end", "b"),
    ("a = 5)", 6, "AND, OR or the end", ")"),
    ("a = 5 = 3", 7, "AND, OR or the end", "="),
    ("(a > 5) = 3", 9, "AND, OR or the end", "="),
    ("(a = 5", 7, "AND, OR or )", "the end"),
    ("a = (5", 7, "an operator or )", "the end"),
    ("a AND", 6, "a property, a value, NOT or (", "the end"),
    ("a OR OR b", 6, "a property, a value, NOT or (", "OR"),
    ("and", 1, "a property, a value, NOT or (", "AND"),
    ("5", 2, "a comparison after the value", "the end"),
    ("a AND 'x' OR b", 11, "a comparison after the value", "OR"),
    ("NOT 5", 6, "a comparison after the value", "the end"),
    ("a > 'x'", 5, "a number or a property, as only numbers have an order", "'x'"),
    ("a <= TRUE", 6, "a number or a property, as only numbers have an order", "TRUE"),
    ("'x' < a", 5, "= or <>, as only numbers have an order", "<"),
    ("a BETWEEN 'a' AND 'b'", 11, "a number or a property, as only numbers have an order", "'a'"),
    ("'a' BETWEEN 1 AND 2", 13, "a number or a property before BETWEEN", "1"),
    ("a BETWEEN 1 OR 2", 13, "AND and the upper bound of BETWEEN", "OR"),
    ("a = NULL", 5, "a value or a property (IS NULL tells whether a property is missing)", "NULL"),
    ("a = (b = 5)", 5, "a value or a property", "a condition"),
    ("TRUE = 5", 6, "operands of one kind", "a number beside TRUE or FALSE"),
    ("5 <> FALSE", 3, "operands of one kind", "a number beside TRUE or FALSE"),
    ("a = -b", 6, "a number after -", "b"),
    ("a = - - 5", 7, "a number after -", "-"),
    ("a IS 5", 6, "NULL or NOT NULL", "5"),
    ("a IS NOT 5", 10, "NULL", "5"),
    ("5 IS NULL", 6, "a property before NULL", "a value"),
    ("5 IN ('a')", 3, "a property before IN", "a value"),
    ("'a' LIKE 'a'", 5, "a property before LIKE", "a value"),
    ("'a' CONTAINS 'a'", 5, "a property before CONTAINS", "a value"),
    ("a NOT 5", 7, "BETWEEN, IN, LIKE, CONTAINS, STARTSWITH or ENDSWITH after NOT", "5"),
    ("a IN 'x'", 6, "( and a list of texts", "'x'"),
    ("a IN ()", 7, "a text such as 'abc'", ")"),
    ("a IN (1)", 7, "a text such as 'abc'", "1"),
    ("a IN ('x' 'y')", 11, ", or )", "'y'"),
    ("a IN ('x',", 11, "a text such as 'abc'", "the end"),
    ("a CONTAINS b", 12, "a text such as 'abc'", "b"),
    ("a LIKE b", 8, "a text such as 'abc'", "b"),
    ("a LIKE 'x' ESCAPE 'ab'", 19, "a text of one character", "'ab'"),
    ("a LIKE 'x' ESCAPE ''", 19, "a text of one character", "''"),
    ("a LIKE 'x!y' ESCAPE '!'", 8, "%, _ or ! after each escape character ! of the pattern", "'x!y'"),
    ("a LIKE 'x!' ESCAPE '!'", 8, "%, _ or ! after each escape character ! of the pattern", "'x!'"),
    ("a = 'x", 7, "the closing ' of the text that begins at character 5", "the end"),
    ("a = 'x''", 9, "the closing ' of the text that begins at character 5", "the end"),
    ("a /* = 5", 9, "the closing */ of the comment that begins at character 3", "the end"),
    ("a != 5", 3, "<> for unequal", "!="),
    ("a == 5", 4, "a property, a value, NOT or (", "="),
    ("a = ?", 5, "a property, a value or an operator", "?"),
    ("a = \x07", 5, "a property, a value or an operator", "\\x07"),
    ("a = 1e999", 5, "a number of at most 100 characters that a double can hold", "1e999"),
    ("a = 1.5L", 8, "AND, OR or the end", "L"),
    ("a = 5 L", 7, "AND, OR or the end", "L"),
    ("a = 5x", 6, "AND, OR or the end", "x"),
    ("a" * 60 + " !", 62, "a property, a value or an operator", "!"),
    ("a " + "b" * 60, 3, "AND, OR or the end", "b" * 40 + "… (60 characters)"),
]


@pytest.mark.parametrize(("expression", "position", "expected", "found"), WRONG)
def test_errors_name_the_place_and_what_was_expected(
    expression: str, position: int, expected: str, found: str
) -> None:
    with pytest.raises(InvalidFilter) as caught:
        compile_sql(expression)
    error = caught.value
    assert (error.position, error.expected, error.found) == (position, expected, found)
    assert str(error) == f"invalid filter at character {position}: expected {expected}, found {found}"


def nested(depth: int) -> str:
    return "(a = 1 OR b = 'x' AND NOT " * depth + "vip" + ")" * depth


AT_THE_LIMIT = {
    "length": "a = 10" + " " * (MAX_LENGTH - 6),
    "conditions": " OR ".join(["a = 1"] * (MAX_CONDITIONS - 1) + ["vip"]),
    "depth": f"{nested(MAX_DEPTH)} OR TRUE",
    "searches": " AND ".join(["b CONTAINS 'b'"] * MAX_SEARCHES),
    "patterns": " AND ".join(["b LIKE 'a%'"] * MAX_PATTERNS),
    "pattern": f"b LIKE 'abc{'%' * (MAX_PATTERN_LENGTH - 3)}'",
    "number": f"a < {'1' * MAX_NUMBER_LENGTH}",
}
OVER_THE_LIMIT = {
    "length": (f"{AT_THE_LIMIT['length']} ", "at most 32768 characters"),
    "conditions": (f"{AT_THE_LIMIT['conditions']} OR vip", "at most 1000 conditions"),
    "depth": (f"({nested(MAX_DEPTH)})", "parentheses nested at most 50 deep"),
    "searches": (f"{AT_THE_LIMIT['searches']} OR b NOT CONTAINS 'x'", "at most 100 CONTAINS"),
    "patterns": (f"{AT_THE_LIMIT['patterns']} OR b LIKE 'x'", "at most 20 LIKE"),
    "pattern": (AT_THE_LIMIT["pattern"].replace("abc", "abc%"), "a pattern of at most 256 characters"),
    "number": (f"{AT_THE_LIMIT['number']}1", "a number of at most 100 characters that a double can hold"),
}


@pytest.mark.parametrize("limit", AT_THE_LIMIT)
def test_expressions_at_a_limit_are_compiled(limit: str) -> None:
    assert matches(AT_THE_LIMIT[limit])


@pytest.mark.parametrize("limit", OVER_THE_LIMIT)
def test_expressions_over_a_limit_are_refused(limit: str) -> None:
    expression, expected = OVER_THE_LIMIT[limit]
    with pytest.raises(InvalidFilter) as caught:
        compile_sql(expression)
    assert caught.value.expected == expected


@pytest.mark.parametrize(
    "number", ["1" * (MAX_NUMBER_LENGTH + 1), "nan", "inf", "1_0", " 10", "0x10", "1e999", "٣"]
)
def test_property_that_is_no_number(number: str) -> None:
    for expression in ("n = n", "n IS NOT NULL"):
        assert compile_sql(expression).matches({"n": number}, None)
    for expression in ("n >= 0", "n < 0", "n = 0", "n <> 0"):
        assert not compile_sql(expression).matches({"n": number}, None)


@pytest.mark.parametrize("number", ["+5", "-5", ".5", "5.", "-.5e+1", "00005", "5E-1"])
def test_property_that_is_a_number(number: str) -> None:
    assert compile_sql(f"n = {number}").matches({"n": number}, None)
    assert compile_sql("n BETWEEN -5 AND 5").matches({"n": number}, None)


def test_parentheses_side_by_side_are_not_nested() -> None:
    assert matches(" AND ".join(["(a = 10)"] * (MAX_DEPTH + 1)))


def test_only_contains_counts_as_a_search() -> None:
    both = "b STARTSWITH 'a' AND b ENDSWITH 'c'"
    assert matches(" AND ".join([both] * (MAX_SEARCHES + 1)))
