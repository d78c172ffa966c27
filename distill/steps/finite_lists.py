"""Lists that end: the schema of a reply stops a teacher that repeats the items of a list until its tokens run out."""

from functools import cache
from typing import Annotated, Any, TypeVar, cast, get_origin

from pydantic import BaseModel, Field, create_model

T = TypeVar("T", bound=BaseModel)

MOST_ITEMS = 10  # twice the steps of the longest annotated decomposition of 2WikiMultihopQA, MuSiQue and StrategyQA


def ended(reply: type[T], most: int = MOST_ITEMS) -> type[T]:
    """The same reply, whose schema ends a list after one item more than `most`, so that a list with too many is still seen to have them.

    Only the schema says so: where a server does not hold its replies to schemas, a longer list is read as it is.
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
