"""A training recipe, and what its keys must agree on."""

from pydantic import ValidationInfo, field_validator, model_validator

from refinery.tasks.base import load_task
from train.settings import TrainSettings
from train.support import check_support


class TrainRecipe(TrainSettings):
    """Fine-tune one model on the rows of one task."""

    @field_validator("eval_steps")
    @classmethod
    def _has_held_out_rows(cls, steps: int | None, info: ValidationInfo) -> int | None:
        if steps is not None and not info.data.get("validation", True):
            raise ValueError("evaluation needs held-out rows: name them by `validation`")
        return steps

    @field_validator("metric_for_best_model")
    @classmethod
    def _is_measured(cls, metric: str | None, info: ValidationInfo) -> str | None:
        scores = load_task(info.data["task"]).scores if "task" in info.data else ()
        if metric is not None and scores and metric not in scores:
            raise ValueError(f"a model of this task is scored by {', '.join(scores)}")
        if metric is not None and info.data.get("eval_steps", 1) is None:
            raise ValueError("choosing the best checkpoint needs evaluations: set `eval_steps`")
        return metric

    @model_validator(mode="after")
    def _supported(self) -> "TrainRecipe":
        check_support(self)
        return self
