"""Run one module of a decoder alone on annotated questions, resumable like every run, and grade its replies."""

from typing import Any

from infer.evaluation.answer_files import AnswerFiles
from infer.evaluation.answers import Answers
from infer.evaluation.module_scores import STAGE, graded_lines
from infer.module_recipe import ModuleRecipe
from infer.pipeline import Pipeline
from infer.run import run_recipe
from refinery.metrics.graded import measures


def run(recipe: ModuleRecipe, *, resume: bool) -> dict[str, Any]:
    """Write the module's replies with what it was given, and return the content of `metrics.json`. `resume` asks failed questions again."""
    return run_recipe(recipe.trimmed(), stage=STAGE, finish=_graded, resume=resume)


def _graded(recipe: ModuleRecipe, pipeline: Pipeline, answers: Answers, files: AnswerFiles, seconds: float) -> dict[str, Any]:
    """Each line's measures, as fractions of 1, with 95 % intervals over questions."""
    lines = graded_lines(recipe.found_module(), answers)
    measured = {on: {"questions": len(found), "measures": measures(found)} for on, found in lines.items()}
    intervals = {
        on: of_line
        | {"measures": {name: {"mean": one.mean, "low": one.low, "high": one.high} for name, one in of_line["measures"].items()}}
        for on, of_line in measured.items()
    }
    return {"module": recipe.module, "kind": recipe.found_module().kind.name, "lines": intervals}
