"""Descriptors of the text of a .proto file, as far as it says how records are read: for registries that give only texts.

protoc or the registry has accepted the text. Fields, their types, numbers and presence, maps, groups, oneofs and enums are taken
over; defaults, options, services and extensions say nothing about what is read here. Names of types stay as they are written: the
pool of descriptors finds them from the scope outwards, as protoc does. Features of editions are refused.
"""

from typing import Any, Final

from susurrus.agents.formats.proto_files import NESTED, ProtoReader, tokens

_TYPES: Final = {
    "double": 1, "float": 2, "int64": 3, "uint64": 4, "int32": 5, "fixed64": 6, "fixed32": 7, "bool": 8, "string": 9, "bytes": 12,
    "uint32": 13, "sfixed32": 15, "sfixed64": 16, "sint32": 17, "sint64": 18,
}  # fmt: skip
_GROUP: Final = 10
_LABELS: Final = {"optional": 1, "required": 2, "repeated": 3}


def descriptor_of_text(text: str) -> Any:
    """The FileDescriptorProto of a text. Raises ValueError."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto  # optional

    file = FileDescriptorProto()
    _Compiler(tokens(text), file).file()
    return file


class _Compiler(ProtoReader):
    """Adds what it reads to a descriptor."""

    def __init__(self, found: list[str], file: Any) -> None:
        super().__init__(found)
        self._file = file

    def file(self) -> None:
        """All statements of the file."""
        while (word := self._peek()) is not None:
            self._at += 1
            if word == "syntax":
                self._take("=")
                self._file.syntax = self._text()
                self._take(";")
            elif word == "edition":
                self._edition()
            elif word == "package":
                start = self._at
                self._rest()
                self._file.package = "".join(self._tokens[start : self._at - 1])
            elif word == "import":
                if self._peek() in ("public", "weak"):
                    self._at += 1
                self._file.dependency.append(self._text())
                self._take(";")
            elif word == "message":
                self._message(self._file.message_type.add(name=self._name()), 1)
            elif word == "enum":
                self._enum(self._file.enum_type.add(name=self._name()))
            elif word == "option":
                self._option(None)
            elif word in ("service", "extend"):
                self._block()
            elif word != ";" and not (word in ("export", "local") and self._peek() in ("message", "enum")):
                raise ValueError("not a declaration")

    def _edition(self) -> None:
        from google.protobuf.descriptor_pb2 import Edition  # optional

        self._take("=")
        self._file.syntax, self._file.edition = "editions", Edition.Value(f"EDITION_{self._text()}")
        self._take(";")

    def _message(self, message: Any, depth: int) -> None:
        if depth > NESTED:
            raise ValueError("nested too deep")
        self._take("{")
        optional: list[Any] = []
        while (word := self._peek()) != "}":
            following = self._peek(1)
            if word is None:
                raise ValueError("a block does not end")
            if word in ("export", "local") and following in ("message", "enum"):
                self._at += 1
            elif word == "message" and self._peek(2) == "{":
                self._at += 1
                self._message(message.nested_type.add(name=self._name()), depth + 1)
            elif word == "enum" and self._peek(2) == "{":
                self._at += 1
                self._enum(message.enum_type.add(name=self._name()))
            elif word == "oneof" and self._peek(2) == "{":
                self._at += 1
                message.oneof_decl.add(name=self._name())
                self._oneof(message, depth)
            elif word == "extend":
                self._block()
            elif word == "option":
                self._at += 1
                self._option(None)
            elif word in ("reserved", "extensions"):
                self._rest()
            elif word == ";":
                self._at += 1
            else:
                self._field_of(message, depth, optional)
        self._at += 1
        for field in optional:  # behind the oneofs that are written
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")

    def _oneof(self, message: Any, depth: int) -> None:
        index = len(message.oneof_decl) - 1
        self._take("{")
        while (word := self._peek()) != "}":
            if word is None:
                raise ValueError("a block does not end")
            if word == "option":
                self._at += 1
                self._option(None)
            elif word == ";":
                self._at += 1
            else:
                self._field_of(message, depth, []).oneof_index = index
        self._at += 1

    def _field_of(self, message: Any, depth: int, optional: list[Any]) -> Any:
        label = None
        if self._peek() in _LABELS and self._peek(1) != "=":
            label = self._tokens[self._at]
            self._at += 1
        if self._peek() == "map" and self._peek(1) == "<":
            return self._map(message)
        if self._peek() == "group" and self._peek(2) == "=":
            return self._group(message, label, depth)
        kind = self._type()
        field = message.field.add(name=self._name(), label=_LABELS[label or "optional"])
        self._typed(field, kind)
        self._number(field)
        self._take(";")
        if label == "optional" and self._file.syntax == "proto3":
            field.proto3_optional = True
            optional.append(field)
        return field

    def _map(self, message: Any) -> Any:
        self._at += 2
        key = self._type()
        self._take(",")
        value = self._type()
        self._take(">")
        name = self._name()
        entry = message.nested_type.add(name="".join(part[:1].upper() + part[1:] for part in name.split("_")) + "Entry")
        entry.options.map_entry = True
        for number, (one, kind) in enumerate((("key", key), ("value", value)), 1):
            self._typed(entry.field.add(name=one, number=number, label=1), kind)
        field = message.field.add(name=name, label=3, type=11, type_name=entry.name)
        self._number(field)
        self._take(";")
        return field

    def _group(self, message: Any, label: str | None, depth: int) -> Any:
        self._at += 1
        name = self._name()
        field = message.field.add(name=name.lower(), label=_LABELS[label or "optional"], type=_GROUP, type_name=name)
        self._number(field)
        self._message(message.nested_type.add(name=name), depth + 1)
        return field

    def _enum(self, enum: Any) -> None:
        self._take("{")
        while (word := self._peek()) != "}":
            if word is None:
                raise ValueError("a block does not end")
            if word == "option" and self._peek(1) != "=":
                self._at += 1
                self._option(enum)
            elif word == "reserved" and self._peek(1) != "=":
                self._rest()
            elif word == ";":
                self._at += 1
            else:
                self._number(enum.value.add(name=self._name()))
                self._take(";")
        self._at += 1

    def _option(self, enum: Any) -> None:
        """Past an option. enum: whose it is, if an enum's."""
        start = self._at
        self._rest()
        words = self._tokens[start : self._at - 1]
        if words[:1] == ["features"]:
            raise ValueError("features of editions are not read")
        if enum is not None and words == ["allow_alias", "=", "true"]:
            enum.options.allow_alias = True

    def _block(self) -> None:
        """Past a statement that ends with a block."""
        while self._peek() not in ("{", None):
            self._at += 1
        self._over()

    def _number(self, one: Any) -> None:
        """The number of a field or an enum's value, and past its options."""
        self._take("=")
        sign = 1
        if self._peek() == "-":
            self._at, sign = self._at + 1, -1
        word = self._peek() or ""
        self._at += 1
        one.number = sign * (int(word, 8) if word.startswith("0") and word.isdigit() else int(word, 0))
        if self._peek() == "[":
            if self._peek(1) == "features":
                raise ValueError("features of editions are not read")
            self._over()

    def _type(self) -> str:
        """A scalar's type, or the name of one."""
        parts: list[str] = []
        while (word := self._peek()) is not None:
            if word != "." and parts and parts[-1] != ".":
                break
            parts.append(word)
            self._at += 1
        return "".join(parts)

    def _typed(self, field: Any, kind: str) -> None:
        if kind in _TYPES:
            field.type = _TYPES[kind]
        else:
            field.type_name = kind

    def _text(self) -> str:
        word = self._peek() or ""
        if word[:1] not in ("'", '"'):
            raise ValueError("a string is missing")
        self._at += 1
        return word[1:-1]
