"""Writes decoders: one function per wire layout, without a call per field.

Adjacent fixed-width fields are read by one precompiled struct, together with the length prefix that
follows them. Running off the end surfaces as struct.error or IndexError and is translated once, at the
foot of the function, because a check per field would cost more than the reads.
"""

from contextlib import AbstractContextManager

from tools.kafka_codec.classes import default_of, snake_case, variable_names
from tools.kafka_codec.merge import Type
from tools.kafka_codec.schema import Field, Struct
from tools.kafka_codec.source import FORMATS, Locals, Source, width


def smallest(struct: Struct) -> int:
    """The fewest bytes that a value of this layout takes: what bounds a declared count."""
    fields = sum(_smallest_field(field, struct.flexible) for field in struct.untagged)
    return max(1, fields + struct.flexible)


def _smallest_field(field: Field, flexible: bool) -> int:
    if field.array:
        return 1 if flexible else 4
    if field.struct is not None:
        return 1 if field.nullable else smallest(field.struct)
    return _smallest_element(field.kind, flexible)


def _smallest_element(kind: str, flexible: bool) -> int:
    if kind in FORMATS:
        return width([FORMATS[kind]])
    if flexible:
        return 1
    return 2 if kind == "string" else 4


def has_arrays(struct: Struct) -> bool:
    return any(field.array or (field.struct and has_arrays(field.struct)) for field in struct.fields)


class DecoderWriter:
    def __init__(self, source: Source, types: dict[str, Type]) -> None:
        self._source = source
        self._types = types
        self._run: list[tuple[str, str]] = []
        self._locals = Locals(set())
        self._flexible = False
        self._tag_depth = 0
        self._counts = False

    def write(self, function: str, struct: Struct) -> None:
        self._flexible = struct.flexible
        self._locals = Locals(variable_names(struct))
        variable = "request" if struct.name.endswith("Request") else "response"
        # Answers are as long as their topics are many; requests come from anybody.
        self._counts = variable == "request" and has_arrays(struct)
        with self._source.block(f"def {function}(buf: memoryview, pos: int) -> {struct.name}:"):
            self._line("size = len(buf)")
            if self._counts:
                self._line("left = MAX_ELEMENTS")
            with self._block("try:"):
                self._new(variable, struct)
                self._struct_fields(variable, struct, struct.name)
                with self._block("if pos != size:"):
                    self._line(f'raise trailing_bytes("{struct.name}", size - pos)')
            with self._block("except (StructError, IndexError):"):
                self._line(f'raise cut_short("{struct.name}", pos, size) from None')
            self._line(f"return {variable}")

    def _line(self, text: str) -> None:
        self._source.line(text)

    def _block(self, opening: str) -> AbstractContextManager[None]:
        return self._source.block(opening)

    def _new(self, variable: str, struct: Struct) -> None:
        """Create the object and fill in what this version does not carry, or may leave out."""
        self._line(f"{variable} = new({struct.name})")
        carried = {field.name for field in struct.untagged}
        for member in self._types[struct.name].members:
            if member.name not in carried:
                self._line(f"{variable}.{member.name} = {default_of(member)}")

    def _struct_fields(self, variable: str, struct: Struct, path: str) -> None:
        for field in struct.untagged:
            self._field(f"{variable}.{field.name}", field, f"{path}.{field.name}")
        if struct.flexible:
            self._tags(variable, struct, path)
        self._flush()

    def _field(self, target: str, field: Field, path: str) -> None:
        if field.array:
            self._array(target, field, path)
        elif field.struct is not None:
            self._nested(target, field, field.struct, path)
        elif field.kind in FORMATS:
            self._run.append((FORMATS[field.kind], target))
        else:
            self._sized(target, field.kind, field.nullable, path)

    def _flush(self) -> None:
        run, self._run = self._run, []
        if not run:
            return
        codes = [code for code, _ in run]
        targets = ", ".join(target for _, target in run)
        if codes == ["B"]:
            self._line(f"{targets} = buf[pos]")
        elif len(run) == 1:
            self._line(f"({targets},) = {self._source.unpack(codes)}(buf, pos)")
        else:
            self._line(f"{targets} = {self._source.unpack(codes)}(buf, pos)")
        self._line(f"pos += {width(codes)}")

    def _length(self, code: str) -> None:
        """Read a length or count into `n`; compact ones are one more than what they mean."""
        if not self._flexible:
            self._run.append((code, "n"))
            self._flush()
            return
        self._run.append(("B", "n"))
        self._flush()
        with self._block("if n > 127:"):
            self._line("n, pos = read_long_uvarint(buf, pos, n)")
        self._line("n -= 1")

    def _sized(self, target: str, kind: str, nullable: bool, path: str) -> None:
        self._length("h" if kind == "string" else "i")
        if nullable:
            with self._block("if n == -1:"):
                self._line(f"{target} = None")
            with self._block("else:"):
                self._content(target, kind, path)
        else:
            self._content(target, kind, path)

    def _content(self, target: str, kind: str, path: str) -> None:
        self._line("end = pos + n")
        # Compact strings could be longer, but in Kafka no string is.
        beyond = "n > MAX_STRING or end > size" if kind == "string" and self._flexible else "end > size"
        with self._block(f"if n < 0 or {beyond}:"):
            self._line(f'raise bad_length("{path}", n, size - pos)')
        if kind == "string":
            # A `try` costs nothing until it catches.
            with self._block("try:"):
                self._line(f"{target} = {_slice(kind)}")
            with self._block("except UnicodeDecodeError:"):
                self._line(f'raise bad_text("{path}") from None')
        else:
            self._line(f"{target} = {_slice(kind)}")
        self._line("pos = end")

    def _array(self, target: str, field: Field, path: str) -> None:
        self._length("i")
        if field.nullable:
            with self._block("if n == -1:"):
                self._line(f"{target} = None")
            with self._block("else:"):
                self._elements(target, field, path)
        else:
            self._elements(target, field, path)

    def _elements(self, target: str, field: Field, path: str) -> None:
        struct = field.struct
        least = smallest(struct) if struct else _smallest_element(field.kind, self._flexible)
        needed = "n" if least == 1 else f"n * {least}"
        if self._counts:
            with self._block(f"if n < 0 or {needed} > size - pos or n > left:"):
                self._line(f'raise bad_count("{path}", n, size - pos, left)')
            self._line("left -= n")
        else:
            with self._block(f"if n < 0 or {needed} > size - pos:"):
                self._line(f'raise bad_count("{path}", n, size - pos)')
        if field.kind == "uuid":
            self._line(f"{target} = [bytes(buf[at : at + 16]) for at in range(pos, pos + n * 16, 16)]")
            self._line("pos += n * 16")
        elif field.kind in FORMATS:
            self._line(f'{target} = list(unpack_from(f">{{n}}{FORMATS[field.kind]}", buf, pos))')
            self._line(f"pos += {needed}")
        else:
            self._loop(target, field, path)

    def _loop(self, target: str, field: Field, path: str) -> None:
        items = self._locals.unique(field.name)
        struct = field.struct
        self._line(f"{items}: list[{struct.name if struct else 'str'}] = []")
        with self._block("for _ in range(n):"):
            if struct is not None:
                item = snake_case(struct.name)
                self._new(item, struct)
                self._struct_fields(item, struct, path)
            else:
                item = "text"
                self._sized(item, field.kind, nullable=False, path=path)
            self._line(f"{items}.append({item})")
        self._line(f"{target} = {items}")

    def _nested(self, target: str, field: Field, struct: Struct, path: str) -> None:
        item = snake_case(struct.name)
        if not field.nullable:
            self._flush()
            self._new(item, struct)
            self._struct_fields(item, struct, path)
            self._line(f"{target} = {item}")
            return
        self._run.append(("b", "marker"))
        self._flush()
        with self._block("if marker < 0:"):
            self._line(f"{target} = None")
        with self._block("else:"):
            self._new(item, struct)
            self._struct_fields(item, struct, path)
            self._line(f"{target} = {item}")

    def _tags(self, variable: str, struct: Struct, path: str) -> None:
        self._run.append(("B", "tags"))
        self._flush()
        with self._block("if tags:"):
            if not struct.tagged:
                self._line(f'pos = skip_tags(buf, pos, tags, "{path}")')
                return
            with self._block("if tags > MAX_TAGS:"):
                self._line(f'raise too_many_tags("{path}")')
            self._tag_depth += 1
            suffix = str(self._tag_depth) if self._tag_depth > 1 else ""
            with self._block("for _ in range(tags):"):
                self._line(f'tag{suffix}, pos, tag_end{suffix} = read_tag(buf, pos, "{path}")')
                self._known_tags(variable, struct, path, suffix)
                with self._block(f"if pos != tag_end{suffix}:"):
                    self._line(f'raise bad_tag("{path}", tag{suffix})')
            self._tag_depth -= 1

    def _known_tags(self, variable: str, struct: Struct, path: str, suffix: str) -> None:
        for position, field in enumerate(struct.tagged):
            if field.nullable and field.struct is not None and not field.array:
                raise NotImplementedError(f"a nullable struct in a tag: {path}.{field.name}")
            with self._block(f"{'elif' if position else 'if'} tag{suffix} == {field.tag}:"):
                self._field(f"{variable}.{field.name}", field, f"{path}.{field.name}")
                self._flush()
        with self._block("else:"):
            self._line(f"pos = tag_end{suffix}")


def _slice(kind: str) -> str:
    match kind:
        case "string":
            return 'str(buf[pos:end], "utf-8")'
        case "records":
            return "buf[pos:end]"
        case "bytes":
            return "bytes(buf[pos:end])"
    raise NotImplementedError(kind)
