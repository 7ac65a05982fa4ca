"""A plan as JSON: docs/plan.md describes the members."""

import math
from dataclasses import asdict
from typing import Any, Final

from susurrus.agents.planning.outcome import SizeClass, Spread, StrategyForecast, StrategyOutcome
from susurrus.agents.planning.plan import PipelinePlan, Variant
from susurrus.agents.planning.volumes import Volumes

VERSION: Final = 1
"""Increases when a known member changes its meaning. Members may be added."""


def as_json(plan: PipelinePlan) -> dict[str, Any]:
    """Every number of the plan. Numbers that there are not (an error where nothing is published) are null."""
    settings = plan.settings
    document = {
        "schema": VERSION,
        "pipeline": plan.pipeline,
        "private": plan.private,
        "input": {
            "source": plan.title,
            "notes": plan.notes,
            "windows": [asdict(size) for size in plan.sizes],
            "records_read": plan.read,
            "records_dropped": plan.dropped,
            "extrapolation": None if plan.extrapolation is None else asdict(plan.extrapolation),
        },
        "constants": {
            "epsilon": settings.privacy.epsilon,
            "delta": settings.privacy.delta,
            "C": settings.bounds.max_records_per_user,
            "m": settings.bounds.max_records_per_key,
            "T": settings.triggers,
            "T_of_windows": list(settings.calendar.all_triggers),
            "columns": [column.name for column in settings.published_columns],
        },
        "seeds": plan.seeds,
        "runs": plan.runs,
        "why": plan.why,
        "preferred": plan.preferred,
        "preferred_by": plan.by,
        "consider": plan.consider,
        "rolling": plan.rolling,
        "later": None if plan.later is None else asdict(plan.later),
        "levels": [asdict(level) for level in settings.grouping],
        "strategies": [_strategy(each) for each in plan.forecasts],
        "what_if": [_variant(each) for each in plan.what_if],
    }
    found = _plain(document)
    assert isinstance(found, dict)
    return found


def _strategy(each: StrategyForecast) -> dict[str, Any]:
    return {
        "strategy": each.name,
        "refused": each.refused,
        "triggers": each.triggers,
        "std_errors": dict(each.std_errors),
        "about_columns": [{"what": what, "text": text} for what, text in each.about],
        "users_to_appear": {f"{probability:g}": users for probability, users in each.appears.items()},
        "outcome": None if each.outcome is None else _outcome(each.outcome),
    }


def _outcome(outcome: StrategyOutcome) -> dict[str, Any]:
    return {
        "records": outcome.records,
        "users": outcome.users,
        "keys": outcome.keys,
        "kept": outcome.kept,
        "users_over_the_caps": outcome.users_over,
        "clamped": {
            field: {"records": records, "of_sum": of_sum} for field, (records, of_sum) in outcome.clamped.items()
        },
        "triggers": [
            {
                "trigger": at.trigger,
                "keys": at.keys,
                "records_covered": at.covered,
                "columns": {name: asdict(errors) for name, errors in at.columns.items()},
            }
            for at in outcome.triggers
        ],
        "keys_by_users": [_size(each) for each in outcome.sizes],
        "volumes": _volumes(outcome.volumes),
    }


def _size(each: SizeClass) -> dict[str, Any]:
    return {
        "users_from": each.least,
        "users_to": each.most,
        "keys": each.keys,
        "found": each.found,
        "error": each.error,
        "relative_error": each.relative,
    }


def _volumes(volumes: Volumes) -> dict[str, Any]:
    return {
        "topic_bytes": dict(volumes.topics),
        "state_bytes": dict(volumes.state),
        "rows": volumes.rows,
        "rows_of_last_trigger": volumes.last_rows,
        "records_of_busiest_trigger": volumes.busiest,
        "seconds_of_busiest_trigger": dict(volumes.seconds),
        "workers": volumes.workers,
    }


def _variant(each: Variant) -> dict[str, Any]:
    found = None if each.forecast is None else _strategy(each.forecast)
    return {"changes": each.changes, "refused": each.refused, "forecast": found}


def _plain(value: Any) -> Any:
    """Spreads as objects, numbers of numpy as Python's, and null for what is no number."""
    if isinstance(value, Spread):
        value = {"mean": value.mean, "deviation": value.deviation}
    if isinstance(value, dict):
        return {str(name): _plain(of) for name, of in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(of) for of in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
