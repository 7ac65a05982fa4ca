"""Bytes of a binary record, damaged: cut, changed, longer, or with numbers that are too long."""

import random


def damaged(dice: random.Random, payload: bytes) -> bytes:
    """The payload with one to four faults."""
    data = bytearray(payload)
    for _ in range(dice.choice([1, 1, 2, 4])):
        at = dice.randrange(len(data) + 1)
        match dice.randrange(7):
            case 0 if at < len(data):
                data[at] = dice.choice([0, 1, 2, 0x7F, 0x80, 0xFF, dice.randrange(256)])
            case 1:
                del data[at:]
            case 2:
                data[at:at] = dice.randbytes(dice.randrange(1, 9))
            case 3:
                data[at:at] = dice.choice(
                    [b"\x80", b"\xff" * 8, b"\xff" * 9 + b"\1", b"\x80" * 9 + b"\0", b"\xff" * 12]
                )
            case 4:
                data += dice.randbytes(1)
            case 5:
                data += data[at:]
            case _:
                del data[at : at + dice.randrange(1, 4)]
    return bytes(data)
