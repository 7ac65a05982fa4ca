"""A plan as a picture: keys and errors over the window for every strategy, and what follows from the constants alone."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from susurrus.agents.planning.plan import PipelinePlan
from susurrus.mechanisms.errors import ConfigurationError

_ENDS: Final = (".png", ".svg", ".pdf")


def check(path: Path) -> None:
    """Raises ConfigurationError where no picture could be written, before the work."""
    if find_spec("matplotlib") is None:
        raise ConfigurationError('--plot: needs matplotlib; run pip install "susurrus[plot]", or leave it out')
    if path.suffix.lower() not in _ENDS:
        raise ConfigurationError(f"--plot={path}: let its name end in {', '.join(_ENDS)}")
    if not path.absolute().parent.is_dir():
        raise ConfigurationError(f"--plot={path}: its directory does not exist; make it, or name another")


def draw(plan: PipelinePlan, path: Path) -> None:
    """Write the picture. Four panels: keys found, error of the first column, users from which a key appears, standard error."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import MaxNLocator

    figure, axes = pyplot.subplots(2, 2, figsize=(10, 7))
    shown = [each for each in plan.forecasts if each.refused is None]
    column = plan.settings.published_columns[0].name
    for each in shown:
        style: dict[str, Any] = {"marker": "o", "markersize": 3.5, "label": each.name}
        if each.name == plan.runs:
            style |= {"linewidth": 2.5, "label": f"{each.name} (runs)"}
        if each.outcome is not None:
            at = [row.trigger for row in each.outcome.triggers]
            keys = [row.keys for row in each.outcome.triggers]
            axes[0][0].errorbar(at, [k.mean for k in keys], yerr=[k.deviation for k in keys], capsize=2, **style)
            errors = [row.columns[column] for row in each.outcome.triggers]
            additive = errors[-1].relative.mean == errors[-1].relative.mean  # not nan, as for means
            values = [e.relative if additive else e.published for e in errors]
            axes[0][1].errorbar(at, [v.mean for v in values], yerr=[v.deviation for v in values], capsize=2, **style)
        if each.appears:
            axes[1][0].plot(each.triggers, each.appears[0.95], **style)
        if column in each.std_errors:
            axes[1][1].plot(each.triggers, each.std_errors[column], **style)
    titles = (
        "keys published",
        f"error of {column}, share of its total",
        "users from which a key appears (95 %)",
        f"standard error of {column}",
    )
    for axis, title in zip(axes.flat, titles, strict=True):
        axis.set_title(title)
        axis.set_xlabel("trigger of the window")
        axis.grid(alpha=0.3)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.set_ylim(bottom=0)
        if not axis.lines and not axis.containers:
            axis.text(0.5, 0.5, "no data given", ha="center", va="center", transform=axis.transAxes)
    axes[0][0].legend() if any(each.outcome for each in shown) else axes[1][0].legend()
    settings = plan.settings
    constants = f"ε = {settings.privacy.epsilon:g}, C = {settings.bounds.max_records_per_user}, T = {settings.triggers}"
    warning = "\nfrom raw data, without privacy protection: keep it inside the trust zone" if plan.private else ""
    figure.suptitle(f"{plan.pipeline}: {plan.title}; {constants}{warning}")
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
