"""The section `[privacy]` of a histogram: the promise, and a section for the parameters of each strategy.

The strategies come from mechanisms/histogram/registry.py, and the settings of a section from the strategy's `Parameters`.
"""

import typing
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field, create_model, model_validator

from susurrus.agents.types.section import Delta, Epsilon, Section
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.histogram.plan import Constants, Plan
from susurrus.mechanisms.histogram.registry import RETIRED, STRATEGIES, default_strategy
from susurrus.mechanisms.histogram.strategy import Strategy


def _field(constants: type[Constants], name: str) -> Any:
    """A setting with the default, limits and description of a constant."""
    constant = constants.__dataclass_fields__[name]
    return Field(default=constant.default, **constant.metadata)


def _strategies() -> Any:
    """The name of a strategy; the documentation says what each of them is."""
    summaries = " ".join(f"`{name}`: {strategy.summary}." for name, strategy in STRATEGIES.items())
    return Field(default=None, alias="strategy", description=f"{_default()} {summaries}")


def _in_use(name: Any) -> Any:
    """The name of a strategy as it is. Raises ValueError with what to write instead where it is a retired one's."""
    if isinstance(name, str) and name in RETIRED:
        raise ValueError(RETIRED[name])
    return name


def _default() -> str:
    usual = default_strategy(triggers=2, counts_users=True, discover=True, max_keys=None).name
    other = default_strategy(triggers=1, counts_users=True, discover=True, max_keys=None).name
    return (
        f"Default: `{usual}` where windows have two triggers or more, a column counts users (`users`, or `count` with "
        "`bounds.max_records_per_key` = 1), keys may be discovered, and `bounds.max_keys_per_user` is not set; else "
        f"`{other}`. `susurrus config check` says which one runs."
    )


class ParametersSection(Section):
    """The parameters of one strategy."""

    _constants: ClassVar[type[Constants]]

    def parameters(self) -> Constants:
        """The same as the strategy takes them. Raises ConfigurationError where they do not fit together."""
        return self._constants(**{name: getattr(self, name) for name in type(self).model_fields})

    @model_validator(mode="after")
    def _check(self) -> "ParametersSection":
        try:
            self.parameters()
        except ConfigurationError as problem:
            raise ValueError(str(problem)) from None
        return self


class UserPromise(Section):
    """The promise, per user and window, under adding or removing all of one user's records in one window."""

    # `named` is what the file says, None where it says nothing. Which strategy runs depends on other sections, too, and
    # `HistogramSettings.strategy` knows: nothing here is called `strategy` that could be read in its place.
    model_config = ConfigDict(populate_by_name=False)

    epsilon: Epsilon
    """Privacy loss per user and window."""
    delta: Delta
    """Probability with which the loss may exceed epsilon; far below one over the number of users."""
    named: str | None = _strategies()
    gaussian_delta_fraction: float = _field(Plan, "gaussian_delta_fraction")
    selection_share: float = _field(Plan, "selection_share")
    secret_file: Path | None = None
    """File with the noise secret (hexadecimal, base64 or raw, at least 32 bytes), the same for all workers; a relative
    path starts at the configuration file. Without it: the variable SUSURRUS_SECRET."""

    def has_section(self, strategy: str) -> bool:
        """Whether there is a section for the parameters of this strategy."""
        return isinstance(getattr(self, _attribute(strategy), None), ParametersSection)

    def parameters_of(self, strategy: type[Strategy[Any]]) -> Constants:
        """The constants of a strategy alone, from its section where it has one."""
        section = getattr(self, _attribute(strategy.name), None)
        return section.parameters() if isinstance(section, ParametersSection) else strategy.Parameters()


def _attribute(strategy: str) -> str:
    return strategy.replace("-", "_")


def _section_of(strategy: type[Strategy[Any]]) -> ParametersSection:
    """The section of a strategy, with all defaults."""
    kind = strategy.Parameters
    types = typing.get_type_hints(kind)
    settings: dict[str, Any] = {each.name: (types[each.name], _field(kind, each.name)) for each in fields(kind)}
    model = create_model(
        f"{strategy.__name__}Settings",
        __base__=ParametersSection,
        __doc__=kind.__doc__,
        __module__=__name__,
        **settings,
    )
    model._constants = kind
    return model()


def privacy_model() -> type[UserPromise]:
    """`UserPromise` with what the registry holds now: the names of the strategies, and a section for each that has parameters."""
    found: dict[str, Any] = {
        "named": (Annotated[Literal[tuple(STRATEGIES)] | None, BeforeValidator(_in_use)], _strategies())
    }
    for name, strategy in STRATEGIES.items():
        if fields(strategy.Parameters):
            section = _section_of(strategy)
            alias = None if _attribute(name) == name else name
            description = f"Parameters of strategy `{name}`."
            found[_attribute(name)] = type(section), Field(default=section, alias=alias, description=description)
    return create_model(
        "PrivacySettings", __base__=UserPromise, __doc__=UserPromise.__doc__, __module__=__name__, **found
    )


if TYPE_CHECKING:
    PrivacySettings = UserPromise  # mypy sees no class that is made at run time
else:
    PrivacySettings = privacy_model()
