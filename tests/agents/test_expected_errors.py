"""Standard errors of streams and local reports: the formulas against the mechanisms' own noise."""

import numpy as np
import pytest

from susurrus.agents.config.settings import Settings
from susurrus.agents.pipelines import pipeline_of, settings_from
from susurrus.agents.runtime.expected_errors import ExpectedErrors
from susurrus.agents.stream.expected_errors import range_error
from susurrus.mechanisms.local.hybrid import Hybrid, hybrid_alpha
from susurrus.mechanisms.noise import NoiseSource
from susurrus.mechanisms.stream.hierarchy import Hierarchy
from susurrus.mechanisms.stream.pak import tree_noise
from tests.agents.planning.settings import settings


def errors_of(settings: Settings) -> ExpectedErrors:
    found = pipeline_of(settings).expected_errors()
    assert found is not None
    return found


def stream(**of):
    tables = {
        "pipeline": {"name": "s", "kind": "stream"},
        "input": {"topic": "raw"},
        "stream": {"bound": 100.0, "epsilon": 0.5, "range_limit": 4096, "holdout": 1000, **of},
    }
    return settings_from(tables, environ={})


@pytest.mark.statistical
def test_a_range_of_a_stream_is_as_noisy_as_trees_that_are_drawn():
    hierarchy = Hierarchy.uniform(range_limit=64, smoothing=0, fanout=4)
    noise = NoiseSource(b"planning" * 4, epoch=b"e", config=b"c", pipeline="p").window(0)
    theta, epsilon = 1000, 0.5
    streams = [b"%d" % number for number in range(3000)]
    trees = [hierarchy.rounded(hierarchy.draw(noise, streams, tree, theta, epsilon)) for tree in range(5)]
    leaves = np.concatenate(trees, axis=1)
    assert leaves.shape[1] >= hierarchy.leaves + 50
    for length in (1, 5, 16, 50):
        sums = [leaves[:, begin : begin + length].sum(axis=1) for begin in range(hierarchy.leaves)]
        found = np.sqrt(np.mean(np.square(sums)))
        assert range_error(hierarchy, length) * theta / epsilon == pytest.approx(found, rel=0.03)


def test_a_streams_errors_grow_with_the_range_and_shrink_with_epsilon():
    found = errors_of(stream())
    lengths, errors = zip(*((values, error) for _, values, error in found.rows), strict=True)
    assert lengths[-1] == 4096
    assert list(errors) == sorted(errors)
    assert found.bound == 100
    assert errors_of(stream(epsilon=1.0, smoothing=0)).rows[-1][2] < errors_of(stream(smoothing=0)).rows[-1][2]


@pytest.mark.statistical
def test_a_running_sum_of_pak_is_as_noisy_as_its_tree():
    settings_ = stream(method="pak", epsilon=1.0, holdout=65_536, horizon=67_536)
    found = {what: (values, error) for what, values, error in errors_of(settings_).rows}
    values, error = found["a running sum, up to"]
    noise = NoiseSource(b"planning" * 4, epoch=b"e", config=b"c", pipeline="p").window(0)
    levels, epsilon, theta = 11, 1.0, 1000  # 2,000 leaves
    drawn = [tree_noise(noise, b"%d" % n, 0, 1, values, levels, theta * levels / epsilon) / 256 for n in range(1500)]
    block = found["the sum of the holdout"][1]
    assert np.hypot(np.sqrt(np.mean(np.square(drawn))) / theta, block) == pytest.approx(error, rel=0.03)


@pytest.mark.statistical
def test_a_mean_of_reports_is_as_noisy_as_reports_that_are_perturbed():
    tables = {"pipeline": {"name": "l", "kind": "local"}, "local": {"bound": 20.0, "epsilon": 1.0}}
    found = errors_of(settings_from(tables, environ={}))
    (_, reports, error), *_ = found.rows
    perturber = Hybrid(1.0, hybrid_alpha(1.0))
    rng = np.random.default_rng(0)

    def words(count: int):
        return rng.integers(0, 1 << 64, count, dtype=np.uint64)

    worst = 0.0
    for fraction in (0.0, 0.25, 0.5, 1.0):
        decoded = perturber.decode(perturber.randomise(np.full(100_000, fraction), words))
        worst = max(worst, float(decoded.std()) / np.sqrt(reports))
    assert error == pytest.approx(worst, rel=0.03)


def test_a_histogram_has_no_formula_and_is_simulated():
    assert pipeline_of(settings()).expected_errors() is None
