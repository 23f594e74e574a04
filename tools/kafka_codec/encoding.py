"""Writes encoders: one function per wire layout, without a call per field.

Small things are joined in a bytearray; record buffers go into the list of chunks as they are, so that
a fetched segment is never copied on its way to the socket.
"""

from contextlib import AbstractContextManager

from tools.kafka_codec.classes import default_of, snake_case, variable_names
from tools.kafka_codec.merge import Type
from tools.kafka_codec.schema import Field, Struct
from tools.kafka_codec.source import FORMATS, Locals, Source


def has_records(struct: Struct) -> bool:
    return any(
        field.kind == "records" or (field.struct is not None and has_records(field.struct))
        for field in struct.fields
    )


class EncoderWriter:
    def __init__(self, source: Source, types: dict[str, Type]) -> None:
        self._source = source
        self._types = types
        self._run: list[tuple[str, str]] = []
        self._flexible = False
        self._out = "out"
        self._locals = Locals(set())

    def write(self, function: str, struct: Struct) -> None:
        self._flexible = struct.flexible
        self._locals = Locals(variable_names(struct))
        chunked = has_records(struct)
        variable = "request" if struct.name.endswith("Request") else "response"
        with self._block(f"def {function}({variable}: {struct.name}) -> list[Buffer]:"):
            if chunked:
                self._line("chunks: list[Buffer] = []")
            self._line("out = bytearray()")
            self._struct_fields(variable, struct, struct.name)
            if chunked:
                self._line("chunks.append(out)")
            self._line(f"return {'chunks' if chunked else '[out]'}")

    def _line(self, text: str) -> None:
        self._source.line(text)

    def _block(self, opening: str) -> AbstractContextManager[None]:
        return self._source.block(opening)

    def _struct_fields(self, variable: str, struct: Struct, path: str) -> None:
        for field in struct.untagged:
            may_be_none = self._types[struct.name].member(field.name).optional and not field.nullable
            self._field(f"{variable}.{field.name}", field, may_be_none, f"{path}.{field.name}")
        if struct.tagged:
            self._flush()
            self._tags(variable, struct, path)
        elif struct.flexible:
            self._run.append(("x", ""))
        self._flush()

    def _field(self, value: str, field: Field, may_be_none: bool, path: str) -> None:
        if may_be_none:
            # Null in the merged type, but this version cannot say so.
            name = self._locals.name(field.name)
            self._line(f"{name} = {value}")
            with self._block(f"if {name} is None:"):
                self._line(f'raise missing_value("{path}")')
            value = name
        if field.array:
            self._array(value, field, path)
        elif field.struct is not None:
            self._nested(value, field, field.struct, path)
        elif field.kind == "records":
            self._records(value, field, path)
        elif field.kind in FORMATS:
            self._run.append((FORMATS[field.kind], value))
        else:
            self._sized(value, field, path)

    def _flush(self) -> None:
        run, self._run = self._run, []
        if not run:
            return
        codes = [code for code, _ in run]
        values = ", ".join(value for _, value in run if value)
        if codes == ["x"]:
            self._line(f"{self._out}.append(0)")
        else:
            self._line(f"{self._out} += {self._source.pack(codes)}({values})")

    def _length(self, value: str, code: str, *, shifted: bool = False) -> None:
        """Write a length or count; compact ones are one more than what they mean."""
        if not self._flexible:
            self._run.append((code, value))
            self._flush()
            return
        self._flush()
        if not shifted:
            self._line(f"n = {value} + 1")
        with self._block("if n < 128:"):
            self._line(f"{self._out}.append(n)")
        with self._block("else:"):
            self._line(f"{self._out} += long_uvarint(n)")

    def _null(self, code: str) -> None:
        if self._flexible:
            self._line(f"{self._out}.append(0)")
        else:
            self._line(f"{self._out} += {'NULL16' if code == 'h' else 'NULL32'}")

    def _sized(self, value: str, field: Field, path: str) -> None:
        code = "h" if field.kind == "string" else "i"
        if not field.nullable:
            self._content(value, field.kind, code)
            return
        self._flush()
        name = self._locals.name(field.name)
        self._line(f"{name} = {value}")
        with self._block(f"if {name} is None:"):
            self._null(code)
        with self._block("else:"):
            self._content(name, field.kind, code)

    def _content(self, value: str, kind: str, code: str) -> None:
        content = value
        if kind == "string":
            content = "text"
            self._line(f"text = {value}.encode()")
        self._length(f"len({content})", code)
        self._line(f"{self._out} += {content}")

    def _records(self, value: str, field: Field, path: str) -> None:
        if self._out != "out":
            raise NotImplementedError(f"records in a tag: {path}")
        self._line(f"records = {value}")
        if self._flexible:
            self._line("n = 0 if records is None else len(records) + 1")
        else:
            self._line("n = -1 if records is None else len(records)")
        self._length("n", "i", shifted=True)
        with self._block("if records:"):
            with self._block("if n < SMALL_RECORDS:"):
                self._line("out += records")
            with self._block("else:"):
                self._line("chunks.append(out)")
                self._line("chunks.append(records)")
                self._line("out = bytearray()")

    def _array(self, value: str, field: Field, path: str) -> None:
        if not field.nullable:
            self._elements(value, field, path)
            return
        self._flush()
        name = self._locals.name(field.name)
        self._line(f"{name} = {value}")
        with self._block(f"if {name} is None:"):
            self._null("i")
        with self._block("else:"):
            self._elements(name, field, path)

    def _elements(self, value: str, field: Field, path: str) -> None:
        self._length(f"len({value})", "i")
        struct = field.struct
        if struct is not None:
            item = snake_case(struct.name)
            with self._block(f"for {item} in {value}:"):
                self._struct_fields(item, struct, path)
        elif field.kind == "uuid":
            self._line(f'{self._out} += b"".join({value})')
        elif field.kind in FORMATS:
            self._line(f'{self._out} += pack(f">{{len({value})}}{FORMATS[field.kind]}", *{value})')
        else:
            with self._block(f"for item in {value}:"):
                self._content("item", field.kind, "h" if field.kind == "string" else "i")

    def _nested(self, value: str, field: Field, struct: Struct, path: str) -> None:
        item = snake_case(struct.name)
        if not field.nullable:
            self._line(f"{item} = {value}")
            self._struct_fields(item, struct, path)
            return
        self._flush()
        self._line(f"{item} = {value}")
        with self._block(f"if {item} is None:"):
            self._line(f"{self._out}.append(255)")
        with self._block("else:"):
            self._run.append(("b", "1"))
            self._struct_fields(item, struct, path)

    def _tags(self, variable: str, struct: Struct, path: str) -> None:
        fields = struct.tagged
        absent = [self._presence(variable, struct, field)[0] for field in fields]
        with self._block(f"if {' and '.join(absent)}:"):
            self._line(f"{self._out}.append(0)")
        with self._block("else:"):
            if len(fields) == 1:
                self._line(f"{self._out}.append(1)")
                self._tag(variable, fields[0], path, self._out)
            else:
                self._several_tags(variable, struct, path)

    def _several_tags(self, variable: str, struct: Struct, path: str) -> None:
        """Their number comes first, so they are gathered on the side."""
        suffix = self._out.removeprefix("out")
        count, gathered = f"tags{suffix}", f"tagged{suffix}"
        self._line(f"{count} = 0")
        self._line(f"{gathered} = bytearray()")
        for field in struct.tagged:
            with self._block(f"if {self._presence(variable, struct, field)[1]}:"):
                self._line(f"{count} += 1")
                self._tag(variable, field, path, gathered)
        self._line(f"{self._out}.append({count})")
        self._line(f"{self._out} += {gathered}")

    def _tag(self, variable: str, field: Field, path: str, target: str) -> None:
        outer, self._out = self._out, f"out{int(self._out.removeprefix('out') or 0) + 1}"
        self._line(f"{self._out} = bytearray()")
        self._field(f"{variable}.{field.name}", field, False, f"{path}.{field.name}")
        self._flush()
        self._line(f"{target} += uvarint({field.tag}) + uvarint(len({self._out}))")
        self._line(f"{target} += {self._out}")
        self._out = outer

    def _presence(self, variable: str, struct: Struct, field: Field) -> tuple[str, str]:
        """The tests for a value that a tagged field need not carry, and for one that it must."""
        value = f"{variable}.{field.name}"
        member = self._types[struct.name].member(field.name)
        if member.optional and member.default is None:
            return f"{value} is None", f"{value} is not None"
        if member.array or member.kind == "bool":
            return f"not {value}", value
        return f"{value} == {default_of(member)}", f"{value} != {default_of(member)}"
