"""``susurrus acls``: the rights that each user of the cluster needs, as commands, or granted at once."""

import shlex
from typing import Annotated, Final, get_args

import typer
from confluent_kafka import KafkaError, KafkaException
from rich.text import Text

from susurrus.agents.cli.console import ConfigOption, SqlOption, err, out
from susurrus.agents.cli.given import settings_of
from susurrus.agents.config.sections import ClusterSettings
from susurrus.agents.config.settings import Settings
from susurrus.agents.kafka.access import Right, Role, grant, missing_rights, rights_of
from susurrus.agents.operations.brokers import Cluster, reach
from susurrus.mechanisms.errors import ConfigurationError

_Users = list[str] | None
_REFUSED: Final = {
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: 'lacks Alter on the cluster; give an administrator\'s "sasl.username" and '
    '"sasl.password" there, or run the commands that `susurrus acls` prints without --apply',
    KafkaError.SECURITY_DISABLED: "may do everything, because the brokers have no authorizer; set authorizer.class.name there",
}


def acls(
    config: ConfigOption = None,
    sql: SqlOption = None,
    worker: Annotated[_Users, typer.Option(help="User that runs workers; repeat for more.")] = None,
    operator: Annotated[_Users, typer.Option(help="User for topics, preflight, status and epochs.")] = None,
    writer: Annotated[_Users, typer.Option(help="User that writes what the pipeline reads.")] = None,
    reader: Annotated[_Users, typer.Option(help="User that reads the results.")] = None,
    dashboard: Annotated[
        _Users, typer.Option(help="User of `susurrus dashboard`: reads the results and the log of charges.")
    ] = None,
    reader_group: Annotated[str | None, typer.Option(help="Consumer group of the readers, if they use one.")] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Grant what is missing, as the user of kafka.properties.")
    ] = False,
) -> None:
    """Print the kafka-acls.sh commands that give every user just what it needs; --apply grants it instead.

    Without a user, the one of kafka.properties runs workers, and with raw topics on another cluster the one of
    input.kafka.properties reads them. Users are names, or principals such as `User:CN=worker`.
    """
    settings = settings_of(config, sql)
    users = {"worker": worker, "operator": operator, "writer": writer, "reader": reader, "dashboard": dashboard}
    if reader_group is not None and not reader:
        raise ConfigurationError(f"--reader-group {reader_group}: needs a reader; give --reader too")
    wanted = [
        (role, _principal(user), rights_of(settings, role, group=reader_group))
        for role in get_args(Role)
        for user in users[role] or ()
    ]
    if not any(users.values()):
        wanted = _of_own_users(settings)
    if apply:
        _apply(settings, wanted)
        return
    for role, principal, rights in wanted:
        out().print(Text(f"# {role} {principal}"), soft_wrap=True)
        for right in rights:
            out().print(Text(right.command(settings, shlex.quote(principal))), soft_wrap=True)


def _apply(settings: Settings, wanted: list[tuple[Role, str, tuple[Right, ...]]]) -> None:
    if settings.kafka.embedded:
        raise ConfigurationError("kafka.embedded=true: the embedded broker has no rights; give a real one")
    admins = [(kafka, reach(Cluster(kafka))) for kafka in settings.clusters]
    for role, principal, rights in wanted:
        missing: set[tuple[str, str, bool]] = set()
        for kafka, admin in admins:
            there = [right for right in rights if right.cluster(settings) is kafka]
            try:
                lacking = missing_rights(admin, principal, there) if there else []
                grant(admin, principal, lacking)
            except KafkaException as error:
                if (advice := _REFUSED.get(error.args[0].code())) is None:
                    raise
                section = f"{kafka.section}.properties"
                user = kafka.properties.get("sasl.username", f"the user of {section}")
                raise ConfigurationError(f"{section}: {user} {advice}") from None
            missing |= {(right.resource, right.name, right.elsewhere) for right in lacking}
        for right in rights:
            granted = (right.resource, right.name, right.elsewhere) in missing
            what = f"{right.resource} {right.name}{'*' if right.prefixed else ''}"
            out().print(Text(f"{'granted' if granted else 'exists ':<8} {role} {principal}: {what}"), soft_wrap=True)
    err().print("Brokers take a second or two to know of new rights.")


def _principal(user: str) -> str:
    return user if ":" in user else f"User:{user}"


def _of_own_users(settings: Settings) -> list[tuple[Role, str, tuple[Right, ...]]]:
    """The rights of a worker for the users that the file names; there may be another one on the cluster of the raw topics."""
    rights = rights_of(settings, "worker")
    return [
        ("worker", _principal(_own_user(kafka)), tuple(right for right in rights if right.cluster(settings) is kafka))
        for kafka in settings.clusters
    ]


def _own_user(kafka: ClusterSettings) -> str:
    user = kafka.properties.get("sasl.username")
    if user is None:
        raise ConfigurationError(
            f'--worker: is missing, and {kafka.section}.properties has no "sasl.username"; give the principal that the brokers '
            "see, for instance --worker User:CN=worker"
        )
    return str(user)
