"""What every section of a configuration is made of: the base class of the models, and the types of names and numbers."""

import math
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", max_length=80)]
InstanceName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=200)]
TopicName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$", min_length=1, max_length=249)]
Positive = Annotated[int, Field(ge=1)]


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("must be a finite number")
    return value


Finite = Annotated[float, AfterValidator(_finite)]
PositiveFloat = Annotated[float, Field(gt=0), AfterValidator(_finite)]
Epsilon = Annotated[float, Field(gt=0, le=100), AfterValidator(_finite)]
Delta = Annotated[float, Field(gt=0, le=0.01)]


class Section(BaseModel):
    """Frozen, no unknown fields, documentation under each field."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, populate_by_name=True, validate_default=True
    )
