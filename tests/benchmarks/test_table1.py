"""The command of the published table prints what it promises, and reads the files it says it reads."""

import gzip
import json

import pytest
import table1
from pairs import read_pairs


@pytest.mark.parametrize("strategy", table1.STRATEGIES)
def test_command_prints_one_json_object(strategy, capsys):
    table1.main(["--strategy", strategy, "--micro-batches", "8", "--users", "3000", "--seed", "2", "--json"])
    row = json.loads(capsys.readouterr().out)
    wanted = "strategy micro_batches users seed keys linf l1 l2 epsilon delta seconds peak_memory_bytes"
    assert set(wanted.split()) <= set(row)
    assert [line["trigger"] for line in row["checkpoints"]] == [2, 4, 6, 8]
    assert (row["strategy"], row["micro_batches"], row["users"]) == (strategy, 8, 3000)
    assert row["keys"] == 0
    assert row["l1"] == row["records"], "nothing is above any threshold, so every record is an error"


def test_reading_pairs_and_baskets(tmp_path):
    pairs = tmp_path / "pairs.tsv.gz"
    with gzip.open(pairs, "wt") as out:
        out.write("when\twho\twhat\n10\tann\tx y\n30\tbob\tz\n20\tann\tz\n")
    found = read_pairs(pairs, header=True, columns=(1, 2), time_column=0)
    assert found.key_names == [b"x y", b"z"]
    assert (found.records.user.tolist(), found.records.key.tolist()) == ([0, 0, 1], [0, 1, 1])
    assert found.records.trigger(2).tolist() == [1, 1, 2]
    baskets = tmp_path / "retail.dat"
    baskets.write_text("0 1 2\n\n2 1\n")
    found = read_pairs(baskets, baskets=True, seed=4)
    assert found.users == 3
    assert sorted(found.key_names[k] for k in found.records.key) == [b"0", b"1", b"1", b"2", b"2"]
