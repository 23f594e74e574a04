"""SQL statements with `?` for values, in the style that a library wants them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

Value: TypeAlias = bytes | str | int | None


@dataclass(frozen=True, slots=True)
class Statement:
    """`text` has a `?` for each value, and no other one."""

    text: str
    values: Sequence[Value] = ()

    def with_percent(self) -> str:
        """For psycopg, PyMySQL, Django."""
        return self.text.replace("%", "%%").replace("?", "%s")

    def with_dollars(self) -> str:
        """For asyncpg."""
        first, *others = self.text.split("?")
        return first + "".join(f"${number}{text}" for number, text in enumerate(others, 1))

    def with_names(self) -> tuple[str, dict[str, Value]]:
        """For SQLAlchemy's `text`, which takes a colon before a word for a name."""
        first, *others = self.text.split("?")
        text = first + "".join(f":v{number}{each}" for number, each in enumerate(others))
        return text, {f"v{number}": value for number, value in enumerate(self.values)}
