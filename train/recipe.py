"""A training recipe, and the checks across its keys."""

from importlib.util import find_spec
from typing import Any

from pydantic import ValidationInfo, field_validator, model_validator

from refinery.installed import install_extra
from refinery.tasks.base import load_task
from train.method import find_method, method_of
from train.settings import TrainSettings
from train.support import check_support

# Alternative packages of a tracker, any one of which is enough.
_PACKAGES = {"tensorboard": ("tensorboard", "tensorboardX")}


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
        scores = _scores(info.data)
        if metric is not None and scores and metric not in scores:
            raise ValueError(f"a model of this task is scored by {', '.join(scores)}")
        if metric is not None and info.data.get("eval_steps", 1) is None:
            raise ValueError("choosing the best checkpoint needs evaluations: set `eval_steps`")
        return metric

    @field_validator("early_stopping_patience")
    @classmethod
    def _has_a_metric(cls, patience: int | None, info: ValidationInfo) -> int | None:
        if patience is not None and info.data.get("metric_for_best_model", "") is None:
            raise ValueError("early stopping needs a score to watch: set `metric_for_best_model`")
        return patience

    @field_validator("data_weights")
    @classmethod
    def _one_for_each_file(cls, weights: list[float], info: ValidationInfo) -> list[float]:
        if weights and len(weights) != len(info.data.get("data", weights)):
            raise ValueError(f"has {len(weights)} weights for {len(info.data['data'])} files of `data`; give each file one")
        return weights

    def check(self, where: str) -> None:
        """Check the method's requirements, and that the trackers and the optimizer are installed."""
        method_of(self).check(self)
        for tracker in self.report_to:
            if not any(find_spec(package) for package in _PACKAGES.get(tracker, (tracker,))):
                raise self.fault("report_to", f"'{tracker}' is a package that is not installed. Install it: pip install {tracker}")

        if "8bit" in self.optim and find_spec("bitsandbytes") is None:
            raise self.fault(
                "optim", f"{self.optim} needs the package bitsandbytes. Install it ({install_extra('gpu')}), or set it to adamw_torch."
            )

    @model_validator(mode="after")
    def _supported(self) -> "TrainRecipe":
        check_support(self)
        return self


def _scores(values: dict[str, Any]) -> tuple[str, ...]:
    """The scores of the method, or of its task; none if these keys are invalid themselves."""
    if "task" not in values or "method" not in values:
        return ()
    task = load_task(values["task"])
    return find_method(values["method"] or task.method).scores or task.scores
