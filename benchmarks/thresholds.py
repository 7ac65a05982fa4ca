#!/usr/bin/env python3
"""The deployments described in the DP-SQLP paper as a table of thresholds: how many users a key needs to be published.

    python benchmarks/thresholds.py [--json]

Google Shopping: one record per user and window (C = 1), T = 150 triggers, δ of the selection 2/3e-9; the paper prints
its thresholds. Google Trends: T = 96 or 150, ε = 2, δ = 1e-10, more than 50 true users required; C = 1 means one
query of a user, so a user's set of queries is not protected.

"toeplitz" is our strategy (with C = 1 and one record per key, selection and count are one mechanism and get the whole
budget): the instantaneous threshold (mean over triggers, last) and the number of users, arriving steadily, that pass
the matched filter at the last trigger without noise. "tree" is dp-sqlp's binary tree with its accounting closed.
All include the one user above the required minimum.
"""

import argparse
import json
import sys
from typing import Any

from susurrus.mechanisms.accounting import gaussian_mu, tail_quantile
from susurrus.mechanisms.histogram import tree
from susurrus.mechanisms.histogram.plan import Column
from susurrus.mechanisms.histogram.registry import build_strategy, plan_of

SETTINGS: list[dict[str, Any]] = [
    *(
        {"what": "Shopping", "triggers": 150, "epsilon": e, "delta": 2e-9 / 3, "minimum_users": 0, "paper": paper}
        for e, paper in ((1.0, 120), (3.0, 43), (10.0, 16))
    ),
    *(
        {"what": "Trends", "triggers": T, "epsilon": 2.0, "delta": 1e-10, "minimum_users": 50, "paper": None}
        for T in (96, 150)
    ),
]


def thresholds(setting: dict[str, Any]) -> dict[str, Any]:
    """One row, in users."""
    T, epsilon, delta, mu = (setting[name] for name in ("triggers", "epsilon", "delta", "minimum_users"))
    plan = plan_of(
        strategy="toeplitz",
        triggers=T,
        epsilon=epsilon,
        delta=delta,
        columns=(Column(name="visits", kind="count"),),
        max_records=1,
        minimum_users=mu,
    )
    ours = build_strategy(plan).describe()["selection"]
    sigma = tree.levels(T) ** 0.5 / gaussian_mu(epsilon, delta / 2)
    tau = tail_quantile(delta / 2 / T) * sigma * tree.prefix_std(T)
    return {
        **setting,
        "toeplitz_mean": round(ours["threshold_mean"], 1),
        "toeplitz_last": round(ours["threshold_last"], 1),
        "toeplitz_steady_last": round(ours["matched_threshold_last"], 1),
        "tree_mean": round(float(tau.mean()) + mu + 1, 1),
        "tree_last": round(float(tau[-1]) + mu + 1, 1),
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args(argv)
    rows = [thresholds(setting) for setting in SETTINGS]
    if options.json:
        for row in rows:
            print(json.dumps(row))
        return 0
    columns = ["paper", "tree_mean", "tree_last", "toeplitz_mean", "toeplitz_last", "toeplitz_steady_last"]
    print(f"{'':<9}{'T':>4} {'ε':>4} {'δ':>8} {'min':>4}", *(f"{name:>20}" for name in columns))
    for row in rows:
        print(
            f"{row['what']:<9}{row['triggers']:>4} {row['epsilon']:>4g} {row['delta']:>8.2g} {row['minimum_users']:>4}",
            *(f"{'-' if row[name] is None else row[name]:>20}" for name in columns),
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
