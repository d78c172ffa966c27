"""What a reply's schema also asks of a teacher: lists that end, and a short rationale before a label."""

from functools import cache
from typing import Annotated, Any, TypeVar, cast, get_origin

from pydantic import BaseModel, Field, create_model

T = TypeVar("T", bound=BaseModel)

MOST_ITEMS = 10  # twice the steps of the longest annotated decomposition of 2WikiMultihopQA, MuSiQue and StrategyQA


def ended(reply: type[T], most: int = MOST_ITEMS) -> type[T]:
    """The same reply, whose schema ends a list after one item more than `most`, so that a list with too many is still seen to have them.

    It stops a teacher that repeats the items of a list until its tokens run out. Only the schema says so: where a server does not hold its
    replies to schemas, a longer list is read as it is.
    """
    return cast("type[T]", _ended(reply, most))


@cache
def _ended(reply: type[BaseModel], most: int) -> type[BaseModel]:
    end = Field(json_schema_extra={"maxItems": most + 1})
    lists: dict[str, Any] = {
        name: (Annotated[field.annotation, *field.metadata, end], ...)
        for name, field in reply.model_fields.items()
        if get_origin(field.annotation) is list and not any(hasattr(rule, "max_length") for rule in field.metadata)
    }
    return create_model(reply.__name__, __base__=reply, __doc__=reply.__doc__, **lists) if lists else reply


class Reasoned(BaseModel):
    """A reply that begins with its rationale, which is kept with the row and never trained."""

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
