"""``susurrus topics``: make the pipeline's topics, or check that they are as the pipeline needs them."""

import typer

from susurrus.agents.cli.console import ConfigOption, out, settings_of

app = typer.Typer(no_args_is_help=True, help="Create or check the topics of a pipeline.")


@app.command()
def create(config: ConfigOption = None) -> None:
    """Create missing topics, and add partitions where the raw topic has grown; nothing else is changed."""
    settings = settings_of(config)
    from susurrus.agents.cli.kafka import admin  # slow to load
    from susurrus.agents.kafka.topics import create_topics

    for line in create_topics(settings, admin(settings)):
        out().print(line)


@app.command()
def check(config: ConfigOption = None) -> None:
    """Check partitions, retention, cleanup, replication and limits of every topic; exit code 1 if anything is wrong."""
    settings = settings_of(config)
    from susurrus.agents.cli.kafka import admin  # slow to load
    from susurrus.agents.pipelines import pipeline_of

    lines = pipeline_of(settings).check_topics(admin(settings))
    for line in lines:
        out().print(line)
    if any(not line.startswith("ok ") for line in lines):
        raise typer.Exit(1)
