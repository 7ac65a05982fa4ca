"""What a mechanism promises: the numbers, the unit and the neighbour relation, in one value and one sentence.

Every strategy has one. spend.py composes them, the ledger topic keeps them, and `susurrus config check` prints them.
"""

from dataclasses import asdict, dataclass

NEIGHBOURS = "add or remove"
UNIT = "user, window"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """(epsilon, delta) for everything one user contributed to one window, all triggers and columns together.

    Privacy: neighbours differ by adding or removing all records of one user in one window. The released values are
    post-processing of one Gaussian mechanism with sensitivity-to-noise ratio at most `mu`, except with probability
    `delta_selection`; hence delta = delta_gaussian + delta_selection, where delta_gaussian = delta_G(mu, epsilon).
    """

    epsilon: float
    delta: float
    mu: float
    delta_gaussian: float
    delta_selection: float
    unit: str = UNIT
    neighbours: str = NEIGHBOURS

    def sentence(self) -> str:
        """The promise in plain English, for people who will not read the formula."""
        return (
            f"Whatever one user did in one window changes the probability of any published result by a factor of at "
            f"most e^{self.epsilon:g}, except with probability {self.delta:.3g}: all triggers and columns of the "
            f"window together, other windows counted separately."
        )

    def to_dict(self) -> dict[str, float | str]:
        """The fields, for JSON."""
        return asdict(self)
