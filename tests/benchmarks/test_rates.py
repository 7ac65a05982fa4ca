"""The arithmetic of the benchmarks, on figures that can be checked by hand."""

import pytest

from benchmarks.rates import Part, Run, percentile, rest, rows, steady


def run(what: str, seconds: float, first: float | None = None, row: str = "plain", **figures: float) -> Run:
    """1,000 records, of which the first 200 took ``first`` seconds."""
    return Run(what, Part(1_000, seconds, figures), None if first is None else Part(200, first), row=row)


def test_the_rest_is_what_the_first_part_leaves() -> None:
    whole, first = Part(1_000, 10.0, {"worker": 8.0, "broker": 2.0}), Part(200, 4.0, {"worker": 4.0})
    left = rest(whole, first)
    assert left == Part(800, 6.0, {"worker": 4.0, "broker": 2.0})
    assert left.cpu_us() == {"worker": 5_000.0, "broker": 2_500.0}


def test_noise_on_a_short_run_gives_no_rate() -> None:
    assert rest(Part(1_000, 3.0), Part(200, 3.5)) is None


def test_a_slow_small_run_does_not_make_the_difference_faster() -> None:
    hiccup, quiet = run("susurrus (1)", 10.0, 8.0), run("susurrus (1)", 11.0, 2.0)
    part = steady([hiccup, quiet], by_sizes=True)
    assert part is not None
    assert part.events_per_second == 800 / (10.0 - 2.0)


def test_where_a_run_says_when_it_is_warm_the_fastest_rest_counts() -> None:
    part = steady([run("bare", 10.0, 8.0), run("bare", 9.0, 2.0)], by_sizes=False)
    assert part is not None
    assert part.events_per_second == 800 / 2.0
    assert steady([run("bare", 10.0)], by_sizes=False) is None


def test_ratios_are_to_the_fastest_warm_row_of_kafka_streams() -> None:
    results = [
        run("kafka-streams (2)", 10.0, 6.0),  # 200 a second warm
        run("kafka-streams tuned (2)", 8.0, 6.0),  # 400 warm
        run("kafka-streams tuned (2)", 9.0, 6.5),
        run("susurrus (1)", 5.0, 3.4),  # 500 warm
    ]
    found = {row["what"]: row for row in rows(results)}
    assert [row["steady_ratio"] for row in found.values()] == [0.5, 1.0, 1.25]
    assert [row["ratio_to_kafka_streams"] for row in found.values()] == [0.25, 0.312, 0.5]
    tuned = found["kafka-streams tuned (2)"]
    assert tuned["events_per_second"] == 125
    assert [single["seconds"] for single in tuned["runs"]] == [8.0, 9.0]
    assert [single["steady_events_per_second"] for single in tuned["runs"]] == [400, 320]


def test_ratios_are_to_kafka_streams_in_the_same_row_and_to_the_same_peer_in_the_row_plain() -> None:
    results = [
        run("kafka-streams tuned (1)", 10.0, 6.0),  # 200 a second warm
        run("susurrus (1)", 5.0, 3.4),  # 500
        run("kafka-streams tuned (1)", 14.0, 6.0, "avro"),  # 100
        run("susurrus (1)", 5.4, 3.4, "avro"),  # 400
        run("susurrus (2)", 5.0, 3.0, "avro"),  # 400, and has no row plain
    ]
    found = {(row["row"], row["what"]): (row["steady_ratio"], row["ratio_to_plain"]) for row in rows(results)}
    assert found == {
        ("plain", "kafka-streams tuned (1)"): (1.0, 1.0),
        ("plain", "susurrus (1)"): (2.5, 1.0),
        ("avro", "kafka-streams tuned (1)"): (1.0, 0.5),
        ("avro", "susurrus (1)"): (4.0, 0.8),
        ("avro", "susurrus (2)"): (4.0, None),
    }


def test_without_kafka_streams_there_is_no_ratio() -> None:
    (row,) = rows([run("bare consumer", 1.0, 0.5)])
    assert (row["ratio_to_kafka_streams"], row["steady_ratio"]) == (None, None)


def test_a_row_tells_bytes_and_memory() -> None:
    (row,) = rows([Run("susurrus (1)", Part(1_000, 1.0), None, {"by-user": 15_600}, 250.4)])
    assert (row["bytes_per_record"], row["memory_mb"]) == ({"by-user": 15.6}, 250)


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.001, 1)])
def test_a_percentile_is_a_value_that_was_measured(share: float, expected: int) -> None:
    assert percentile(list(range(100, 0, -1)), share) == expected


def test_of_few_values_the_99th_percentile_is_the_highest() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.99) == 3.0
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
