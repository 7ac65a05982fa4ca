"""A toy format: MessagePack, one map a record. It plugs in by one line: ``FORMATS[MessagePack.name] = MessagePack``."""

from typing import Any

import msgspec

from susurrus.agents.formats.format import ObjectFormat


class MessagePack(ObjectFormat):
    """msgspec parses it."""

    name = "messagepack"
    meaning = "one MessagePack map a record"

    def parse(self, payload: bytes) -> Any:
        """The map."""
        return msgspec.msgpack.decode(payload)
