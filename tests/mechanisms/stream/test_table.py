"""A table of streams releases what each stream alone would, whatever the batches; its bytes bring every stream back."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from susurrus.mechanisms.errors import Refusal
from susurrus.mechanisms.noise import NoiseSource, WindowNoise
from susurrus.mechanisms.stream.pak import Pak
from susurrus.mechanisms.stream.quantile import SmoothQuantile
from susurrus.mechanisms.stream.table import PakTable, TopsTable, stream_address
from susurrus.mechanisms.stream.tops import Tops
from tests.mechanisms.stream.one_stream import whole

TOPS = Tops.of(bound=100, epsilon=0.5, holdout=20, range_limit=1024, fanout=4, smoothing=1)
QUANTILE = SmoothQuantile(bound=100, epsilon=0.8, delta=1e-5, holdout=20, tail=0.1, beta_tail=0.05)
PAK = Pak(threshold=QUANTILE, epsilon=1.0, horizon=20 + 64)
TABLES = {"tops": lambda: TopsTable(TOPS), "pak": lambda: PakTable(PAK)}


def noise() -> WindowNoise:
    return NoiseSource(b"s" * 32, epoch=b"e", config=b"c", pipeline="p").window(0)


def released(make, rows: np.ndarray, values: np.ndarray, cuts: list[int], *, restart: bool) -> dict[int, list]:
    table, found = make(), {}
    for row in range(5):
        table.add(b"stream-%d" % row, None, None)
    stored: dict[int, bytes] = {}
    for part_rows, part_values in zip(np.split(rows, cuts), np.split(values, cuts), strict=True):
        if not len(part_rows):
            continue
        step = table.step(part_rows, part_values, noise())
        assert set(step.changed.tolist()) <= set(step.touched.tolist())
        columns = [getattr(step.releases, name).tolist() for name in step.releases.__dataclass_fields__]
        for row, event, *released in zip(step.rows.tolist(), step.events, *columns, strict=True):
            assert part_rows[event] == row
            found.setdefault(row, []).append(released)
        stored.update({row: table.pack_cold(row) for row in step.changed.tolist()})
        if restart:
            hot = table.pack_hot(np.arange(5))
            table = make()
            for row in range(5):
                table.add(b"stream-%d" % row, hot[row], stored.get(row))
    return dict(sorted(found.items()))


@pytest.mark.parametrize("make", TABLES.values(), ids=TABLES)
@settings(max_examples=15, deadline=None)
@given(cuts=st.lists(st.integers(1, 1199), max_size=8, unique=True), seed=st.integers(0, 3))
def test_batches_restarts_and_neighbours_change_nothing(make, cuts, seed):
    rng = np.random.default_rng(seed)
    rows, values = rng.integers(0, 5, 1200), rng.integers(-3, 130, 1200)
    together = released(make, rows, values, [], restart=False)
    assert len(together) == 5
    assert str(released(make, rows, values, sorted(cuts), restart=True)) == str(together)
    alone = released(make, rows[rows == 3], values[rows == 3], [], restart=False)
    assert str(alone[3]) == str(together[3])


def test_a_table_releases_what_the_definition_says_of_each_stream():
    rng = np.random.default_rng(5)
    rows, values = rng.integers(0, 5, 1200), rng.integers(-3, 130, 1200)
    found = released(TABLES["tops"], rows, values, [100, 700], restart=True)
    for row in range(5):
        _, alone = whole(TOPS, values[rows == row], noise(), b"stream-%d" % row)
        columns = [getattr(alone, name).tolist() for name in alone.__dataclass_fields__]
        assert str(found[row]) == str([list(each) for each in zip(*columns, strict=True)])


@pytest.mark.parametrize("remembered", [0, 64, 300])
def test_noise_that_is_forgotten_is_drawn_again(remembered, monkeypatch):
    rng = np.random.default_rng(7)
    rows, values = rng.integers(0, 5, 900), rng.integers(0, 130, 900)
    together = released(TABLES["tops"], rows, values, [], restart=False)
    monkeypatch.setattr("susurrus.mechanisms.stream.open_trees._REMEMBERED", remembered)
    assert str(released(TABLES["tops"], rows, values, list(range(9, 900, 9)), restart=False)) == str(together)


def test_a_tree_is_drawn_once_and_each_draw_has_an_address_of_its_own():
    """As many streams are drawn by one call, the address of every label is recorded."""
    drawn: list[tuple[str, bytes]] = []

    class Watched:
        def __init__(self) -> None:
            self._real = noise()

        def labels(self, mechanism, keys):
            drawn.extend((mechanism, key) for key in keys)
            return self._real.labels(mechanism, keys)

        def __getattr__(self, name):
            return getattr(self._real, name)

    table, source, rng = TopsTable(TOPS), Watched(), np.random.default_rng(1)
    for row in range(5):
        table.add(b"stream-%d" % row, None, None)
    for _ in range(60):
        table.step(rng.integers(0, 5, 100), rng.integers(0, 100, 100), source)
    assert len(drawn) == len(set(drawn)) > 5 * (1 + 3 * TOPS.base.layers)


@pytest.mark.parametrize("make", TABLES.values(), ids=TABLES)
def test_the_state_of_another_version_is_refused(make):
    table = make()
    table.add(b"s", None, None)
    hot, cold = table.pack_hot(np.arange(1))[0], table.pack_cold(0)
    table.add(b"s", hot, cold)
    version = cold if isinstance(table, TopsTable) else hot
    older = bytes([version[0] - 1]) + version[1:]
    with pytest.raises(Refusal, match=f"version={version[0] - 1}, not {version[0]}"):
        table.add(b"s", hot if version is cold else older, older if version is cold else cold)


def test_addresses_of_partitions_and_streams_differ():
    assert stream_address(1, b'"a"') != stream_address(2, b'"a"')
    assert len(TopsTable(TOPS).pack_hot(np.arange(0))) == 0
    table = TopsTable(TOPS)
    table.add(b"s", None, None)
    assert len(table.pack_hot(np.array([0]))[0]) == 40
