"""The receipt of a row: what it cost and by which configuration it was released. A Kafka header of every released row.

    susurrus.receipt   {"epsilon":6.0,"delta":1e-9,"mu":1.19,"unit":"user, window","neighbours":"add or remove",
                        "window":"1d","strategy":"closing","digest":"6f0c…","schema":1}

It is about everything that the unit's records contributed to, not about the one row. All of it is public. It is the same for
all rows of a run, so compression leaves a few bytes of it.
"""

import msgspec

from susurrus.topics.wire.json_rows import decoder

HEADER = "susurrus.receipt"
VERSION = 1


class Receipt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a reader may learn at most from all rows together.

    epsilon, delta: the promise for one unit. unit: what is protected. neighbours: how two inputs differ that nobody can tell apart
    better than that. window: length of what the promise is for, None where it is per event or report. strategy: the mechanism.
    mu: its sensitivity in standard deviations of the noise, None where it is not Gaussian. digest: of the configuration, hex.
    """

    epsilon: float
    delta: float
    mu: float | None = None
    unit: str
    neighbours: str
    window: str | None = None
    strategy: str
    digest: str
    schema: int

    def header(self) -> tuple[str, bytes]:
        """The header's name and value."""
        return HEADER, msgspec.json.encode(self)


decode = decoder(Receipt, HEADER, VERSION)
