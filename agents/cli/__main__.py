"""``python -m susurrus.agents.cli``: the command line without an installed script; ``susurrus demo`` starts its
workers so."""

from susurrus.agents.cli.main import app

if __name__ == "__main__":
    app()
