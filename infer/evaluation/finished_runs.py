"""Read finished infer runs from disk."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from infer.evaluation.scores import SCORES_FILE, QuestionScores
from infer.recipe import InferRecipe
from infer.steps.selection import Fidelity
from refinery.contract.records import Question, read_records
from refinery.contract.trace import PREDICTIONS_FILE, Prediction
from refinery.errors import RunDirError
from refinery.questions.base import read_questions
from refinery.runtime.recipe import build_recipe
from refinery.runtime.run_dir import read_metrics, read_run


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A finished run: its folder, recipe and `metrics.json`."""

    path: Path
    recipe: InferRecipe
    metrics: dict[str, Any]

    @property
    def selected_by(self) -> tuple[str, Fidelity]:
        """The selection and the fidelity by which a run with trees chose its answers."""
        options = self.recipe.decoder_options(str(self.path))
        chosen = {"selection": options.selection, "fidelity": options.fidelity} | self.metrics.get("rescored_with", {})
        return chosen["selection"], cast(Fidelity, chosen["fidelity"])

    def questions(self) -> list[Question]:
        """The questions of its recipe. Raises RecordError if their files are missing."""
        recipe = self.recipe
        return read_questions([self.find(path) for path in recipe.questions], reader=recipe.reader, limit=recipe.limit)

    def find(self, name: str | Path) -> Path:
        """A path in the recipe, resolved from the folder where the run was started, which may differ from the current one."""
        parts, here = self.recipe.output_dir.parts, self.path.resolve()
        start = Path(*here.parts[: -len(parts)]) if here.parts[-len(parts) :] == parts else Path()
        return start / name if (start / name).exists() else Path(name)

    def predictions(self) -> list[Prediction]:
        """The predictions, with answers and traces."""
        return read_records(self.path / PREDICTIONS_FILE, Prediction)

    def scores(self) -> list[QuestionScores]:
        """The scores of each question."""
        return read_records(self.path / SCORES_FILE, QuestionScores)


def open_stored(path: Path) -> StoredRun:
    """A finished infer run. Raises RunDirError for anything else."""
    record = read_run(path)
    if record["stage"] != "infer":
        raise RunDirError(f"{path}: is a {record['stage']} run. Name the output_dir of an infer run.")
    metrics = read_metrics(path)
    if "questions_hash" not in metrics:
        raise RunDirError(f"{path}: was made by an older version, which did not record what its results depend on. Run it again.")
    return StoredRun(path, build_recipe(record["recipe"], InferRecipe, where=str(path / "run.json")), metrics)


def stored_runs(path: Path) -> list[StoredRun]:
    """The run in a folder, or the infer runs inside a demo's folder."""
    if read_run(path)["stage"] == "demo":
        return [open_stored(inside) for inside in sorted((path / "infer").iterdir())]
    return [open_stored(path)]
