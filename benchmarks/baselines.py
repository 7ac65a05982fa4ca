"""The two baselines of DP-SQLP's evaluation, with the best accounting we know: one-shot queries, once per trigger.

repeated     ("baseline1")  every trigger asks a one-shot query over all data so far; the last answer counts
incremental  ("baseline2")  every trigger asks a one-shot query over its own micro-batch; answers of a key are summed

A one-shot query adds N(0, σ²) to every key's count and publishes what reaches μ + 1 + zσ. Each is one Gaussian
mechanism per query, all T together are one Gaussian mechanism, so exact Gaussian DP composes them without loss:

repeated     a user's C records (one per key) are in up to T queries: μ_G = √(CT)/σ, C·T tests can err
incremental  every record is in exactly one query:                    μ_G = √C/σ,    C tests can err

This accounting is tighter than the paper's, so the paper's own baselines can publish no more than these.
"""

import numpy as np
import numpy.typing as npt
from progress import Progress
from scipy.special import ndtri

from susurrus.agents.planning.offline import Checkpoint, LatestEstimates
from susurrus.agents.planning.spool import Spool, checkpoints
from susurrus.mechanisms.accounting import gaussian_mu


def run_baseline(
    spooled: Spool, *, repeated: bool, max_records: int, epsilon: float, delta: float, seed: int
) -> tuple[list[Checkpoint], LatestEstimates]:
    """Both baselines over a spool with at most `max_records` records per user, one per key."""
    T, keys = spooled.triggers, len(spooled.key_names)
    tests = max_records * (T if repeated else 1)
    sigma = np.sqrt(tests) / gaussian_mu(epsilon, delta / 2)
    threshold = np.ceil(1 + 0.5 - ndtri(delta / 2 / tests) * sigma)
    rng = np.random.default_rng([seed, repeated])
    ends = checkpoints(T)
    truth = np.zeros(keys, np.int64)
    published = LatestEstimates.nothing(keys)
    found: list[Checkpoint] = []
    progress = Progress("baseline, triggers", T)
    for trigger in range(1, T + 1):
        if not repeated:
            truth[:] = 0
        for key, _ in spooled.trigger(trigger):
            truth += np.bincount(key, minlength=keys)
        noisy = np.zeros(keys, np.int64)
        touched = np.flatnonzero(truth)
        noisy[touched] = truth[touched] + _rounded(rng, sigma, len(touched))
        passed = np.flatnonzero((truth > 0) & (noisy >= threshold))
        if repeated:
            published.known[:] = False
            published.estimate[passed] = noisy[passed]
        else:
            published.estimate[passed] += noisy[passed]
        published.known[passed] = True
        if trigger in ends:
            found.append(published.checkpoint(trigger, spooled.truth[ends.index(trigger)]))
        progress(trigger)
    return found, published


def _rounded(rng: np.random.Generator, sigma: float, size: int) -> npt.NDArray[np.int64]:
    return np.rint(rng.normal(0, sigma, size)).astype(np.int64)
