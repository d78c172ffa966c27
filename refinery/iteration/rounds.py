"""The steps of each round, run like a project's: a step that is up to date is skipped, and an interrupted one continues.

Round 0 is the initial checkpoint, which is only evaluated.
"""

from collections.abc import Sequence
from pathlib import Path

from refinery.iteration.recipe import IterateRecipe
from refinery.project.jobs import Job, jobs_of
from refinery.project.project import Project, Step
from refinery.runtime.recipes.yaml_file import read_yaml

Steps = dict[str, Step]


def folder_of(recipe: IterateRecipe, number: int) -> Path:
    """The folder of a round's runs."""
    return recipe.output_dir / f"round_{number}"


def model_of(recipe: IterateRecipe, number: int) -> str:
    """The checkpoint that a round ends with."""
    return str(folder_of(recipe, number) / "model") if number else recipe.start


def round_steps(recipe: IterateRecipe, number: int, *, planned: bool = False) -> Steps:
    """The steps of one round. For a plan, later rounds use an existing base of the same size."""
    steps = _learning(recipe, number, planned=planned) if number else {}
    return steps | _answers(recipe, number, "validation", recipe.validation)


def test_steps(recipe: IterateRecipe, best: int) -> Steps:
    """The final steps: the first checkpoint and the best round answer the test questions, and are compared."""
    if not recipe.test:
        return {}
    steps = _answers(recipe, 0, "test", recipe.test) | (_answers(recipe, best, "test", recipe.test) if best else {})
    for name in recipe.evaluate if best else ():
        first, last = (str(folder_of(recipe, number) / "test" / name) for number in (0, best))
        metric = ["--metric", recipe.metric]
        steps[f"table_{name}"] = Step(command=["compare", first, last, "--baseline", _selected(recipe, name, first), *metric], shown=True)
    return steps


def jobs_for(recipe: IterateRecipe, steps: Steps) -> dict[str, Job]:
    """The steps as jobs."""
    project = Project(steps=steps, environment=recipe.environment, at_once=recipe.at_once)
    return jobs_of(project, where=recipe.where)


def _learning(recipe: IterateRecipe, number: int, *, planned: bool) -> Steps:
    folder, model = folder_of(recipe, number), model_of(recipe, number - 1)
    questions = f"questions={_listed(recipe.questions)}"
    samples, rows = folder / "samples", folder / "rows"
    data, weights = [rows / "train.jsonl"], [1.0]
    if recipe.replay:
        data, weights = [*data, *recipe.replay.rows], [*weights, *[recipe.replay.share] * len(recipe.replay.rows)]
    base, merging = _base(recipe, number, planned=planned)
    sampled = ["infer", *recipe.sample, questions, f"{recipe.model_key}={model}", *_draws(recipe, number), f"output_dir={samples}"]
    kept = ["distill", *recipe.keep, questions, f"runs=[{samples}]", f"output_dir={rows}"]
    trained = ["train", *recipe.train, f"data={_listed(data)}", f"data_weights={weights}", f"seed={recipe.seed + number}"]
    return {
        f"{number}_sample": Step(command=sampled, accelerate=recipe.accelerate),
        f"{number}_keep": Step(command=kept),
        **merging,
        f"{number}_train": Step(
            command=[*trained, *([f"base={base}"] if base else []), f"output_dir={folder / 'model'}"], accelerate=recipe.accelerate
        ),
    }


def _draws(recipe: IterateRecipe, number: int) -> list[str]:
    """A different seed for each round, because the same one would lead to much the same paths again."""
    return [f"llm.seed={recipe.seed + number}"] if recipe.values_of(recipe.sample).get("llm") else []


def _base(recipe: IterateRecipe, number: int, *, planned: bool) -> tuple[str | None, Steps]:
    """The checkpoint that the round trains, and the step that creates it if an adapter must first be merged into its base."""
    if recipe.train_from == "first":
        return None, {}
    model = model_of(recipe, number - 1)
    if planned:
        return _whole(recipe.start), {}
    is_adapter = (Path(recipe.start) / "adapter_config.json").exists() if number == 1 else recipe.trains_adapters
    if not is_adapter:
        return model, {}
    merged = folder_of(recipe, number) / "base"
    return str(merged), {f"{number}_merge": Step(command=["merge", model, "--output", str(merged), "--resume"])}


def _whole(checkpoint: str) -> str:
    """The checkpoint, or the base of an adapter."""
    config = Path(checkpoint) / "adapter_config.json"
    return str(read_yaml(config)["base_model_name_or_path"]) if config.exists() else checkpoint


def _answers(recipe: IterateRecipe, number: int, kind: str, questions: Sequence[Path]) -> Steps:
    model = f"{recipe.model_key}={model_of(recipe, number)}"
    return {
        f"{number}_{kind}_{name}": Step(
            command=["infer", *words, f"questions={_listed(questions)}", model, f"output_dir={folder_of(recipe, number) / kind / name}"],
            accelerate=recipe.accelerate,
        )
        for name, words in recipe.evaluate.items()
    }


def _selected(recipe: IterateRecipe, name: str, run: str) -> str:
    """The label under which `compare` shows the selected answers of a run, whose systems occur in the other run too."""
    values = recipe.values_of(recipe.evaluate[name])
    options = values.get("options")
    system = str(values.get("name") or values["decoder"])
    selection = options.get("selection", "ensemble") if isinstance(options, dict) and values["decoder"] == "rq_rag" else ""
    return f"{system}_{selection} ({run})" if selection else f"{system} ({run})"


def _listed(paths: Sequence[Path]) -> str:
    return f"[{', '.join(map(str, paths))}]"
