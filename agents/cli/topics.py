"""``susurrus topics``: make the pipeline's topics, or check that they are as the pipeline needs them."""

import typer

from susurrus.agents.cli.console import ConfigOption, out, settings_of

app = typer.Typer(no_args_is_help=True, help="Create or check the topics of a pipeline.")


@app.command()
def create(config: ConfigOption = None) -> None:
    """Create what is missing; topics that exist are checked, never changed."""
    settings = settings_of(config)
    from susurrus.agents.bootstrap import create_topics
    from susurrus.agents.cli.kafka import admin

    for line in create_topics(settings, admin(settings)):
        out().print(line)


@app.command()
def check(config: ConfigOption = None) -> None:
    """Check partitions, retention, cleanup and replication of every topic; changes nothing."""
    settings = settings_of(config)
    from susurrus.agents.bootstrap import check_topics
    from susurrus.agents.cli.kafka import admin

    for line in check_topics(settings, admin(settings)):
        out().print(line)
