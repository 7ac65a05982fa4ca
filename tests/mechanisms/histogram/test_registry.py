"""A strategy is its file and its line in the registry: everything else derives, and nothing else names it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from susurrus.agents.cli.reference import markdown
from susurrus.agents.pipelines import json_schema, pipeline_of, settings_from
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.histogram.plan import Column, Constants, Plan
from susurrus.mechanisms.histogram.registry import (
    RETIRED,
    STRATEGIES,
    better_for,
    build_strategy,
    default_strategy,
    plan_of,
)
from susurrus.mechanisms.histogram.strategy import Increments
from susurrus.mechanisms.noise import NoiseSource
from tests.reference import NO_LAST_LOOK
from tests.toys.strategy import Frugal, registered

ROOT = Path(__file__).parents[3]
COMMON: dict[str, Any] = {
    "triggers": 4,
    "epsilon": 4.0,
    "delta": 1e-3,
    "columns": (Column(name="visits", kind="count"),),
    "max_records": 8,
}


def settings(**privacy: Any) -> Any:
    return settings_from(
        {
            "pipeline": {"name": "p", "kind": "histogram"},
            "input": {"topic": "t", "user": "u", "key": ["k"]},
            "privacy": {"epsilon": 4.0, "delta": 1e-3, **privacy},
        },
        environ={},
    )


@pytest.fixture
def toy() -> Iterator[None]:
    with registered(Frugal):
        yield


@pytest.mark.usefixtures("toy")
class TestOneRegistration:
    def test_gives_a_section_with_defaults_and_limits(self) -> None:
        given = settings(strategy=Frugal.name, **{Frugal.name: {"spent": 0.5}})
        assert given.plan().parameters == Frugal.Parameters(spent=0.5)
        assert settings(strategy=Frugal.name).plan().parameters == Frugal.Parameters()
        for wrong, message in (
            ({"spent": 0}, rf"privacy\.{Frugal.name}\.spent = 0: must be greater than 0"),
            ({"spend": 1}, rf'privacy\.{Frugal.name}\.spend: unknown field; did you mean "spent"'),
            ({"prior": [1.0, 2.0]}, "prior: must be positive and not increasing"),
        ):
            with pytest.raises(ConfigurationError, match=message):
                settings(**{Frugal.name: wrong})

    def test_gives_checks_across_sections(self) -> None:
        with pytest.raises(ConfigurationError, match=rf"use privacy\.{Frugal.name}\.ranked_keys instead"):
            settings_from(
                {
                    "pipeline": {"name": "p", "kind": "histogram"},
                    "input": {"topic": "t", "user": "u", "key": ["k"]},
                    "privacy": {"epsilon": 1.0, "delta": 1e-6, "strategy": Frugal.name},
                    "bounds": {"max_keys_per_user": 3},
                },
                environ={},
            )

    def test_gives_a_schema_and_a_page(self) -> None:
        schema = json_schema()
        assert schema["$defs"]["FrugalSettings"]["properties"]["spent"]["exclusiveMinimum"] == 0
        assert Frugal.name in schema["$defs"]["PrivacySettings"]["properties"]["strategy"]["anyOf"][0]["enum"]
        page = markdown()
        assert f"`[privacy.{Frugal.name}]`" in page
        assert "| `spent` | number | `0.9` | yes | Share of the squared budget that is used. |" in page
        assert f"`{Frugal.name}`: {Frugal.summary}." in page

    def test_gives_digests_that_its_section_alone_changes(self) -> None:
        plain, other = settings(strategy=Frugal.name), settings(strategy=Frugal.name, **{Frugal.name: {"spent": 0.5}})
        assert plain.config_digest() != other.config_digest()
        assert plain.plan().digest() != other.plan().digest()
        assert json.loads(plain.published_json())[f"privacy.{Frugal.name}"] == {
            "gamma": 0.65,
            "lag": 1,
            "prior": [1.0, 0.5, 0.25, 0.125],
            "ranked_keys": 4,
            "spent": 0.9,
        }
        with pytest.raises(ConfigurationError, match=rf"privacy\.{Frugal.name}: has no meaning .*delete the section"):
            settings(**{Frugal.name: {"spent": 0.5}})

    def test_gives_the_topics_it_needs(self) -> None:
        assert "published-keys" in {spec.name for spec in settings(strategy=Frugal.name).topic_specs}
        assert "published-keys" not in {spec.name for spec in settings(strategy="toeplitz").topic_specs}

    def test_gives_a_mechanism_that_promises_and_publishes(self) -> None:
        strategy = build_strategy(settings(strategy=Frugal.name).plan())
        assert strategy.guarantee.epsilon == 4.0
        assert strategy.describe()["mu"] < strategy.guarantee.mu
        assert [subject for subject, _ in strategy.costs({"count": 1.0})] == ["noise", "new keys"]
        noise = NoiseSource(b"s" * 32, epoch=b"e", config=b"c", pipeline="p").window(0)
        many = np.array([10_000, 0])
        news = Increments(users=many, weight=many << 20, sums=many[:, None])
        step = strategy.step(1, [b"a", b"b"], strategy.empty(2), news, noise, np.zeros(2, np.bool_))
        assert step.published.tolist() == [True, False]


def test_a_toy_is_gone_with_its_registration() -> None:
    with pytest.raises(ConfigurationError, match=r"privacy\.strategy"):
        settings(strategy=Frugal.name)


class TestEveryStrategy:
    @pytest.mark.parametrize("name", STRATEGIES)
    def test_takes_feedback_where_it_uses_it(self, name: str) -> None:
        strategy = build_strategy(plan_of(name, **COMMON))
        assert strategy.name == name
        assert (strategy.bounding.lag is not None) == strategy.feedback
        assert strategy.feedback or (strategy.lists is None and not strategy.refined)

    @pytest.mark.parametrize("name", STRATEGIES)
    def test_documents_its_parameters_and_shares_no_name_with_the_plan(self, name: str) -> None:
        own = STRATEGIES[name].Parameters.__dataclass_fields__
        assert all(field.metadata["description"].endswith(".") for field in own.values())
        assert not set(own) & set(Plan.__dataclass_fields__)
        assert STRATEGIES[name].ranked_by in {"", *own}
        assert STRATEGIES[name].summary

    @pytest.mark.parametrize("name", STRATEGIES)
    def test_refuses_the_parameters_of_another(self, name: str) -> None:
        class Foreign(Constants):
            pass

        with pytest.raises(ConfigurationError, match=f"strategy={name}"):
            build_strategy(Plan(strategy=name, parameters=Foreign(), **COMMON))

    @pytest.mark.parametrize("name", STRATEGIES)
    def test_ranks_keys_or_caps_them(self, name: str) -> None:
        plan = plan_of(name, **COMMON, max_keys=3)
        if STRATEGIES[name].ranked_by:
            with pytest.raises(ConfigurationError, match=rf"max_keys=3.*{STRATEGIES[name].ranked_by}"):
                build_strategy(plan)
        else:
            assert build_strategy(plan).bounding.max_keys == 3

    @pytest.mark.parametrize("name", STRATEGIES)
    def test_has_shares_of_its_own_or_uses_the_common_one(self, name: str) -> None:
        plan = plan_of(name, **COMMON, selection_share=0.3)
        assert STRATEGIES[name].shared_by in {"", *STRATEGIES[name].Parameters.__dataclass_fields__}
        if STRATEGIES[name].shared_by:
            with pytest.raises(ConfigurationError, match=rf"selection_share=0\.3.*use {STRATEGIES[name].shared_by}"):
                build_strategy(plan)
        else:
            assert build_strategy(plan).guarantee.epsilon == 4.0

    def test_an_unknown_name_is_refused(self) -> None:
        with pytest.raises(ConfigurationError, match=r"strategy='laplace': choose one of"):
            plan_of("laplace", **COMMON)

    @pytest.mark.parametrize("name", RETIRED)
    def test_a_retired_name_is_refused_with_what_to_write_and_that_is_right(self, name: str) -> None:
        instead = (
            r'write strategy = "closing" and.* discovery_share = 0\.5, unknown_share = 0 and public_share = 0 in \[priv'
        )
        with pytest.raises(
            ConfigurationError, match=rf'privacy\.strategy = "{name}": is no strategy any more.*{instead}'
        ):
            settings(strategy=name)
        with pytest.raises(ConfigurationError, match=rf"strategy='{name}': is no strategy any more"):
            plan_of(name, **COMMON)
        given = settings(strategy="closing", closing={"discovery_share": 0.5, "unknown_share": 0, "public_share": 0})
        assert build_strategy(given.plan()).lists is None


def test_the_worker_knows_strategies_by_their_class(toy: None) -> None:
    assert pipeline_of(settings(strategy=Frugal.name)).settings.strategy is Frugal


class TestDefault:
    USUAL: ClassVar[dict[str, Any]] = {"triggers": 2, "counts_users": True, "discover": True, "max_keys": None}

    @pytest.mark.parametrize("triggers", [2, 3, 100, 2_048])
    def test_finds_most_keys_where_it_can(self, triggers: int) -> None:
        choice = default_strategy(**{**self.USUAL, "triggers": triggers})
        assert choice.name == "closing"
        assert f"{triggers} triggers" in str(choice.reason)

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"triggers": 1}, "one trigger"),
            ({"discover": False}, "declared"),
            ({"counts_users": False}, "no column counts users"),
            ({"max_keys": 3}, "capped"),
        ],
    )
    def test_is_the_simple_one_elsewhere_and_says_why(self, change: dict[str, Any], reason: str) -> None:
        choice = default_strategy(**{**self.USUAL, **change})
        assert choice.name == "toeplitz"
        assert reason in str(choice.reason)

    @pytest.mark.parametrize("triggers", [1, 2, 24])
    @pytest.mark.parametrize("max_records_per_key", [1, 2])
    @pytest.mark.parametrize("kind", ["count", "users", "sum"])
    @pytest.mark.parametrize("changes", [{}, {"max_keys": 3}, {"discover": False}], ids=str)
    def test_never_chooses_one_that_refuses_the_plan(
        self, triggers: int, max_records_per_key: int, kind: Any, changes: dict[str, Any]
    ) -> None:
        column = Column(name="x", kind=kind)
        usual = self.USUAL | {"triggers": triggers, "counts_users": column.counts_users(max_records_per_key)} | changes
        constants = COMMON | {"triggers": triggers, "columns": (column,), "max_records_per_key": max_records_per_key}
        choice = default_strategy(**usual)
        assert build_strategy(plan_of(choice.name, **constants, **changes)).guarantee.epsilon == 4.0

    def test_says_with_its_own_numbers_when_another_is_better(self) -> None:
        plan = plan_of("closing", **{**COMMON, "triggers": 100, "epsilon": 6.0, "delta": 1e-9, "max_records": 32})
        few, running = better_for(plan)
        assert few.startswith("toeplitz, ")
        assert "dozens" in few
        # As measured on data: docs/results.md.
        assert "standard error 13.4 instead of" in few
        assert running.startswith(
            "closing without its last look (discovery_share = 0.5, unknown_share = 0, public_share = 0), "
        )

    def test_says_only_what_may_apply(self) -> None:
        assert "dozens" not in next(better_for(plan_of("closing", **COMMON)))
        assert len(list(better_for(plan_of("closing", **{**COMMON, "max_records": 32, "triggers": 2})))) == 1
        assert list(better_for(plan_of("toeplitz", **COMMON))) == []
        [few] = better_for(plan_of("closing", **{**COMMON, "max_records": 32, "triggers": 100}, **NO_LAST_LOOK))
        assert few.startswith("toeplitz, ")
        amount = Column(name="amount", kind="sum", bound=10)
        assert list(better_for(plan_of("closing", **{**COMMON, "columns": (amount,)}, **NO_LAST_LOOK))) == []


@pytest.mark.parametrize("name", STRATEGIES)
def test_no_strategy_is_named_outside_its_file_and_the_registry(name: str) -> None:
    """In quotes, as a section, as a class or as an imported module; but for strategies that extend its parameters."""
    kind = STRATEGIES[name]
    module = kind.__module__.rpartition(".")[2]
    homes = {"registry", module}
    if kind.Parameters is not Constants:
        homes.add(kind.Parameters.__module__.rpartition(".")[2])
        extended = (other for other in STRATEGIES.values() if issubclass(other.Parameters, kind.Parameters))
        homes |= {other.__module__.rpartition(".")[2] for other in extended}
    word = re.escape(name)
    pattern = re.compile(rf"""["'`]{word}["'`]|privacy\.{word}\b|histogram\.{module}\b|\b{kind.__name__}(?=[.(\]`])""")
    files = [file for file in (ROOT / "mechanisms").rglob("*.py") if file.stem not in homes]
    # Demonstrations hold configurations.
    files += [file for file in (ROOT / "agents").rglob("*.py") if file.parent.name != "demo"]
    assert [f"{file.relative_to(ROOT)}: {hit}" for file in files for hit in pattern.findall(file.read_text())] == []
