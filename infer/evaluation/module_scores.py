"""Quality of the modules in runs of `refinery evaluate-modules`, graded when they end, and again from the folder of a finished run."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infer.evaluation.answers import Answer, Answers, RecordFile
from infer.module_recipe import ModuleRecipe
from infer.modules.base import OUTPUT, Module
from refinery.contract.records import Question
from refinery.contract.trace import PREDICTIONS_FILE, QUESTIONS_FILE
from refinery.errors import RunDirError
from refinery.llms.served.endpoint import EndpointConfig
from refinery.llms.served.paid.prices import known_price
from refinery.metrics.bootstrap import Measure
from refinery.metrics.graded import Graded, measures
from refinery.runtime.recipe import build_recipe
from refinery.runtime.run.run_dir import read_metrics, read_run
from refinery.text import with_article

STAGE = "modules"


@dataclass(frozen=True, slots=True)
class ModuleRun:
    """A finished run of one module."""

    path: Path
    recipe: ModuleRecipe
    metrics: Mapping[str, Any]

    @property
    def module(self) -> Module:
        """The module that ran."""
        return self.recipe.found_module()

    @property
    def model(self) -> Any:
        """The configuration of the model that plays the module's role: a sub-model, or the recipe's own model."""
        named = (self.recipe.sub_models[role] for role in self.module.roles if role in self.recipe.sub_models)
        return next(named, self.recipe.model)

    @property
    def model_name(self) -> str:
        """The model's name or folder; with an adapter, the adapter's."""
        model = self.model
        adapter = next((model.adapters[role] for role in self.module.roles if role in model.adapters), None)
        return str(adapter or (model.model if isinstance(model, EndpointConfig) else model.base))

    @property
    def dollars(self) -> float | None:
        """The price of the module's tokens, without the judge's; None if it is unknown or the model runs on this machine."""
        price = known_price(self.model)[0] if isinstance(self.model, EndpointConfig) else None
        cost = self.metrics["cost"]
        return price and (cost["prefill_tokens"] * price.prompt + cost["decode_tokens"] * price.completion) / 1e6


@dataclass(frozen=True, slots=True)
class ModuleQuality:
    """One line: a run, and the quality of some of its replies by one kind of annotation. Shares are fractions from 0 to 1."""

    run: ModuleRun
    on: str
    questions: int
    measures: Mapping[str, Measure]


def open_module_run(path: Path) -> ModuleRun:
    """A finished run. Raises RunDirError for anything else."""
    record = read_run(path)
    if record["stage"] != STAGE:
        raise RunDirError(f"{path}: is {with_article(record['stage'])} run. Name the output_dir of a run of `refinery evaluate-modules`.")
    return ModuleRun(path, build_recipe(record["recipe"], ModuleRecipe, where=str(path / "run.json")), read_metrics(path))


def module_quality(runs: Sequence[Path]) -> list[ModuleQuality]:
    """The lines of each run. Raises RunDirError for a folder without a finished run of one module."""
    return [line for run in map(open_module_run, runs) for line in _lines(run)]


def module_metrics(recipe: ModuleRecipe, answers: Answers) -> dict[str, Any]:
    """What `metrics.json` says of a run: each line's measures, as fractions of 1, with 95 % intervals over questions."""
    module, lines = recipe.found_module(), dict[str, Any]()
    for on, graded in graded_lines(module, answers).items():
        found = {name: {"mean": one.mean, "low": one.low, "high": one.high} for name, one in measures(graded).items()}
        lines[on] = {"questions": len(graded), "measures": found}
    return {"module": recipe.module, "kind": module.kind.name, "lines": lines}


def _lines(run: ModuleRun) -> list[ModuleQuality]:
    answers = Answers(RecordFile(run.path / QUESTIONS_FILE, Question), run.path / PREDICTIONS_FILE)
    graded = graded_lines(run.module, answers)
    return [ModuleQuality(run, on, len(found), measures(found)) for on, found in graded.items()]


def graded_lines(module: Module, answers: Iterable[Answer]) -> dict[str, list[Graded]]:
    """The graded questions of each line. Questions that failed are left out, because --resume asks them again."""
    lines: dict[str, list[Graded]] = {}
    for question, prediction in answers:
        if prediction is None or prediction.failed is not None:
            continue
        steps = [step for step in prediction.trace if step.name == OUTPUT]
        for on, found in module.kind.grade(question, steps).items():
            lines.setdefault(on, []).append(found)
    return lines
