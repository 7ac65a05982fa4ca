"""What a kind of pipeline can say of its standard errors before anything runs, by its mechanism's own formulas."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedErrors:
    """Standard errors of what a pipeline publishes. They are proportional to theta, the clipping threshold, which is found from the
    first values and is at most the bound."""

    rows: list[tuple[str, int, float]]
    """The published number in words, how many values or reports it is of, and its standard error in units of theta."""
    bound: float
    """The largest theta, in the unit of the values."""
    note: str
    """What the errors are of, and what they leave out."""
