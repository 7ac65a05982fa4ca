"""The one hierarchy of errors; every message says name=value and ends with what the operator should do.

    SusurrusError
    ├── ConfigurationError     a setting cannot be right                 (agents/settings.py and mechanisms)
    ├── PrivacyError           going on would break the guarantee
    │   ├── BudgetExhausted    the total (epsilon, delta) is spent
    │   └── ReplayMismatch     an already published trigger would be published differently
    └── Refusal                a partition must not go on                (agents/)

No message identifies a user or a key.
"""


class SusurrusError(Exception):
    """Base of every error this project raises on purpose."""


class ConfigurationError(SusurrusError):
    """A setting cannot be right. Operator action: change the setting the message names."""


class PrivacyError(SusurrusError):
    """Going on would break the guarantee. Operator action: as the message says; nothing was published."""


class BudgetExhausted(PrivacyError):
    """The total budget is spent. Operator action: stop the pipeline, or raise the total in the open."""


class ReplayMismatch(PrivacyError):
    """An already published trigger would come out differently. Operator action: restore the raw log or start a new epoch."""


class Refusal(SusurrusError):
    """A partition must not go on. Operator action: as the message says; the other partitions run on."""
