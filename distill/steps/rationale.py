"""A short rationale before a label: it is asked for and kept with the row, and never trained."""

from functools import cache
from typing import TypeVar, cast

from pydantic import BaseModel, create_model

T = TypeVar("T", bound=BaseModel)


class Reasoned(BaseModel):
    """A reply that begins with its rationale."""

    rationale: str


def reasoned(reply: type[T]) -> type[T]:
    """The same reply with a rationale as its first field, so that a teacher writes it before the label."""
    return cast("type[T]", _reasoned(reply))


@cache
def _reasoned(reply: type[BaseModel]) -> type[BaseModel]:
    return create_model(f"Reasoned{reply.__name__}", __base__=(reply, Reasoned))  # pydantic takes the fields of the last base first


def rationale_of(reply: BaseModel) -> str | None:
    """The rationale of a reply, or None if none was asked for."""
    return (reply.rationale.strip() or None) if isinstance(reply, Reasoned) else None
