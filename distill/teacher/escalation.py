"""The keys for a stronger teacher that labels what the first one is unsure of: a cascade, as in FrugalGPT (Chen et al., 2023)."""

from pydantic import Field

from distill.teacher.config import TeacherConfig
from refinery.runtime.recipes.recipe import Recipe


class Escalation(Recipe):
    """The stronger teacher, and when it is asked. It is always asked for a row that the first teacher's reply got rejected."""

    teacher: TeacherConfig = Field(description="the stronger teacher, whose labels replace those of the first")
    min_agreement: float = Field(
        default=1.0, description="it labels a row if a smaller share of the first teacher's `samples` agrees on it", ge=0, le=1
    )
    min_probability: float | None = Field(
        default=None,
        description="it labels a row with a label that the first teacher finds less probable than this, by its log-probabilities; only for "
        "tasks with labels and protocols that have log-probabilities",
        gt=0,
        le=1,
    )
