"""The messages of a .proto file in their order, from its text or its descriptor: what message indexes count.

Of the text only as much is read as that takes: declarations, blocks and their ends. protoc or the registry has accepted it; what
cannot be read raises ValueError. protoc makes messages of three declarations: `message`, `group`, and the entries of a `map`.
"""

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

_TOKEN: Final = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/|(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|(?P<word>\w+)|(?P<mark>[^\s\w"'])""",
    re.DOTALL,
)
NESTED: Final = 100  # protobuf's own limit of nesting
_OPEN: Final = {"{": "}", "[": "]"}


@dataclass(slots=True)
class Message:
    """A message. entry: of a map field, which is no type of records. nested: the messages inside it, in order."""

    name: str
    entry: bool = False
    nested: list["Message"] = field(default_factory=list)


@dataclass(slots=True)
class ProtoFile:
    """A file. package: empty where it has none."""

    package: str
    messages: list[Message]

    def name_at(self, indexes: Sequence[int]) -> str | None:
        """The full name of the message that the indexes lead to; None where they lead to none.

        Serializers count the entries of maps as protoc does; Confluent's for Java does not with `normalize.schemas`. The second way
        counts where the first leads to nothing.
        """
        return self._name_at(indexes, entries=True) or self._name_at(indexes, entries=False)

    def named(self, name: str) -> str | None:
        """The full name of the message with a name, which is inside others or not; None unless there is one such message."""
        found: list[str] = []

        def look(messages: Sequence[Message], outer: str) -> None:
            for message in messages:
                full = f"{outer}.{message.name}" if outer else message.name
                if message.name == name and not message.entry:
                    found.append(full)
                look(message.nested, full)

        look(self.messages, self.package)
        return found[0] if len(found) == 1 else None

    def _name_at(self, indexes: Sequence[int], *, entries: bool) -> str | None:
        names, messages = [self.package] if self.package else [], self.messages
        message = None
        for index in indexes:
            counted = messages if entries else [one for one in messages if not one.entry]
            if index >= len(counted):
                return None
            message = counted[index]
            names.append(message.name)
            messages = message.nested
        return None if message is None or message.entry else ".".join(names)


def file_of_descriptor(file: Any) -> ProtoFile:
    """Reads a FileDescriptorProto."""

    def message(one: Any) -> Message:
        return Message(one.name, one.options.map_entry, [message(inner) for inner in one.nested_type])

    return ProtoFile(file.package, [message(one) for one in file.message_type])


def file_of_schema(text: str) -> ProtoFile:
    """Reads a schema as registries write it: the text, or the descriptor in base64. Raises ValueError."""
    descriptor = descriptor_in(text)
    return file_of_text(text) if descriptor is None else file_of_descriptor(descriptor)


def descriptor_in(text: str) -> Any:
    """The FileDescriptorProto that is in a schema in base64; None where the schema is a text. Raises ValueError."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto  # optional
    from google.protobuf.message import DecodeError

    try:
        data = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        return None  # a text has a brace, unless it declares no message
    try:
        return FileDescriptorProto.FromString(data)
    except DecodeError as error:
        raise ValueError("neither a .proto file nor a descriptor") from error


def file_of_text(text: str) -> ProtoFile:
    """Reads the text of a .proto file. Raises ValueError."""
    reader = ProtoReader(tokens(text))
    messages: list[Message] = []
    reader.block(messages, end=None, depth=0)
    return ProtoFile(reader.package, messages)


def tokens(text: str) -> list[str]:
    """Words, marks, and strings with their quotes. Raises ValueError."""
    found, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError("a string or comment does not end")
        at = match.end()
        if match["text"]:
            found.append(match["text"])
        elif token := match["word"] or match["mark"]:
            found.append(token)
    return found


class ProtoReader:
    """Goes through the tokens once. Raises ValueError where something is not as protoc takes it."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens, self._at = tokens, 0
        self.package = ""

    def block(self, messages: list[Message], *, end: str | None, depth: int) -> None:
        """The statements up to ``end`` (None: of the file); their messages are added to those of the scope."""
        if depth > NESTED:
            raise ValueError("nested too deep")
        while True:
            word = self._peek()
            if word == end:
                self._at += end is not None
                return
            if word is None:
                raise ValueError("a block does not end")
            self._statement(word, messages, depth)

    def _statement(self, word: str, messages: list[Message], depth: int) -> None:
        top = depth == 0
        if word in ("export", "local") and self._peek(1) in ("message", "enum"):
            self._at += 1  # of edition 2024
            word = self._tokens[self._at]
        if word == "message":
            self._at += 1
            message = Message(self._name())
            self._take("{")
            self.block(message.nested, end="}", depth=depth + 1)
            messages.append(message)
        elif word == "oneof" or word == "extend":
            # Groups inside belong to the scope around it.
            while self._peek() not in ("{", None):
                self._at += 1
            self._take("{")
            self.block(messages, end="}", depth=depth + 1)
        elif word == "enum" or (word == "service" and top):
            while self._peek() not in ("{", None):
                self._at += 1
            self._over()
        elif word == "package" and top:
            self._at += 1
            start = self._at
            self._rest()
            self.package = "".join(self._tokens[start : self._at - 1])
        elif word in ("option", "reserved", "extensions") or (word in ("syntax", "edition", "import") and top):
            self._rest()
        elif word == ";":
            self._at += 1
        elif top:
            raise ValueError("not a declaration")
        else:
            self._field(messages, depth)

    def _field(self, messages: list[Message], depth: int) -> None:
        """A field, which may be a map or a group."""
        start = self._at
        while (word := self._peek()) not in (";", "{"):
            if word is None or word == "}":
                raise ValueError("a field does not end")
            self._over()
        head = self._tokens[start : self._at]
        if word == "{":
            if "group" not in head[:2] or head[-1] == "group":
                raise ValueError("a field with a block is no group")
            group = Message(head[head.index("group") + 1])
            self._at += 1
            self.block(group.nested, end="}", depth=depth + 1)
            messages.append(group)
            return
        if head[:2] == ["map", "<"]:
            messages.append(Message("", entry=True))
        self._at += 1

    def _peek(self, ahead: int = 0) -> str | None:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else None

    def _take(self, mark: str) -> None:
        if self._peek() != mark:
            raise ValueError("something is missing in a declaration")
        self._at += 1

    def _name(self) -> str:
        name = self._peek()
        if name is None or not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise ValueError("a declaration has no name")
        self._at += 1
        return name

    def _over(self) -> None:
        """Past a token, or past all in a pair of brackets."""
        awaited: list[str] = []
        while True:
            token = self._peek()
            if token is None:
                raise ValueError("a bracket is not closed")
            self._at += 1
            if token in _OPEN:
                awaited.append(_OPEN[token])
            elif awaited and token == awaited[-1]:
                awaited.pop()
            elif token in _OPEN.values():
                raise ValueError("a bracket closes nothing")
            if not awaited:
                return

    def _rest(self) -> None:
        """Past the statement's semicolon."""
        while self._peek() != ";":
            self._over()
        self._at += 1
