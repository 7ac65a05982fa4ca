"""What docs/results.md shows is what the JSON beside it holds, and the deployments' thresholds are better than the printed ones."""

import results
import thresholds


def test_the_document_is_rendered_from_its_json():
    assert results.main(["--check"]) == 0, "run python benchmarks/results.py"


def test_tables_of_others_are_left_alone():
    text = "a\n<!-- table: somebody-elses -->\n| x |\n<!-- end -->\nb"
    assert results.render(text) == text


def test_thresholds_beat_the_paper_and_grow_with_what_is_asked():
    rows = [thresholds.thresholds(setting) for setting in thresholds.SETTINGS]
    shopping = [row for row in rows if row["what"] == "Shopping"]
    assert all(row["toeplitz_last"] < row["paper"] for row in shopping)
    assert all(row["toeplitz_last"] < row["tree_last"] for row in rows)
    # Late users count as much as early ones. Where many are required, the height they may have comes before the noise.
    assert all(row["toeplitz_steady_last"] < row["toeplitz_last"] for row in shopping)
    assert all(row["toeplitz_steady_last"] < row["toeplitz_mean"] for row in rows)
    assert [row["toeplitz_last"] for row in shopping] == sorted(
        (row["toeplitz_last"] for row in shopping), reverse=True
    )
    trends = [row for row in rows if row["what"] == "Trends"]
    assert all(row["toeplitz_steady_last"] > row["minimum_users"] for row in trends)
