"""Which system of a project to serve, and in one sentence whether its method was worth it.

Validation questions decide what is served; test questions, which decide nothing, say how much better it is.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from infer.evaluation.compare import compare
from infer.evaluation.tables.comparison import Line
from infer.recipe import RUN_KEYS, pipeline_recipe
from refinery.errors import RunDirError
from refinery.runtime.files.jsonl import written_to
from refinery.runtime.recipe import read_values
from refinery.runtime.run.run_dir import read_run

_FEW = 50  # questions, below which a difference of ten points is likely to be chance


@dataclass(frozen=True, slots=True)
class Verdict:
    """The run whose system is served, the sentence, and what to know about it."""

    served: Path
    sentence: str
    remarks: tuple[str, ...]


def find_verdict(tested: Sequence[Path], validated: Sequence[Path], *, baseline: str, metric: str | None = None) -> Verdict:
    """Compare runs on test questions, and the same systems' runs on validation questions, in the same order, with a baseline.

    Without a `metric`, it is the first F1 that papers report on the dataset, or else the first of their metrics. Raises RunDirError for
    runs that do not belong together, and as `compare`.
    """
    on_test, on_validation = (_by_folder(runs, baseline) for runs in (tested, validated))
    if list(on_test) != list(on_validation) or baseline not in on_test:
        raise RunDirError(
            f"verdict: test runs {', '.join(on_test)} and validation runs {', '.join(on_validation)} must be of the same systems."
        )
    metric = metric or _usual(on_test[baseline])
    scores = {name: line.scores[metric].mean for name, line in on_validation.items()}
    best = max([baseline, *scores], key=scores.__getitem__)  # of equal ones the baseline
    rival = best if best != baseline else next(name for name in reversed(scores) if name != baseline)  # a project's method comes last
    chosen = f"{scores[rival]:.1f} {metric} for {scores[baseline]:.1f} on {on_validation[baseline].questions} validation questions"
    sentence = f"{rival} {_difference(on_test[rival], metric, baseline)}: serving {best} ({chosen})"
    served = next(path for path in tested if path.name == best)
    return Verdict(served, sentence, tuple(_remarks(on_test, on_validation, metric)))


def write_served(verdict: Verdict, path: Path, *, additions: Path | None = None) -> None:
    """Write the recipe of the chosen system, without the keys of a run, and with those of `additions`: how it answers people.

    Raises RecipeError for a served recipe that is wrong.
    """
    recipe = read_run(verdict.served)["recipe"]
    added = read_values(additions) if additions else {}
    models = {"sub_models": recipe.get("sub_models", {}) | added.get("sub_models", {})}
    served = {key: value for key, value in (recipe | added | models).items() if key not in RUN_KEYS}
    pipeline_recipe(served, where=str(additions or verdict.served))
    text = f"# {verdict.sentence}\n" + yaml.safe_dump(served, sort_keys=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_to(path):
        path.write_text(text, encoding="utf-8")


def _by_folder(runs: Sequence[Path], baseline: str) -> dict[str, Line]:
    """The line of each run's own answers, by the name of its folder; of a tree, those of the selection that it is made with."""
    of_baseline = next((str(path) for path in runs if path.name == baseline), baseline)
    lines = [line for line in compare(runs, baseline=of_baseline) if line.system.name == line.system.run.system]
    return {line.system.run.path.name: line for line in lines}


def _usual(line: Line) -> str:
    return next((metric for metric in line.scores if metric.startswith("f1.")), next(iter(line.scores)))


def _difference(line: Line, metric: str, baseline: str) -> str:
    found = line.differences.get(metric)
    on = f"on {line.questions} test questions"
    if found is None:
        return f"cannot be compared with {baseline} {on}"
    how = "better than" if found.low > 0 else "worse than" if found.high < 0 else "not shown to be better than"
    return f"is {how} {baseline}, by {found.mean:+.1f} {metric} [{found.low:+.1f}, {found.high:+.1f}] {on}"


def _remarks(on_test: dict[str, Line], on_validation: dict[str, Line], metric: str) -> Iterator[str]:
    for lines, what in ((on_test, "test"), (on_validation, "validation")):
        count = min(line.questions for line in lines.values())
        if count < _FEW:
            yield f"{count} {what} questions are few: below {_FEW}, ten points may well be chance. Add documents or questions."
    for name, line in on_test.items():
        if not line.scores[metric].mean:
            run = line.system.run.path
            yield f"{name} has {metric} 0.0 on all {line.questions} test questions. Look at its answers: refinery view {run}"
        if failed := line.system.run.metrics.get("failed", 0):
            yield f"{name} failed on {failed} questions, which count as wrong."
