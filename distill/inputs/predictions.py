"""Look up the predictions of finished infer runs by question. Only the place of each prediction is kept in memory."""

from collections.abc import Sequence
from pathlib import Path

from pydantic_core import from_json

from distill.teacher.teacher import RejectedRow
from infer.sampling import question_of
from refinery.contract.records import Question, parse_record
from refinery.contract.trace import PREDICTIONS_FILE, Prediction
from refinery.errors import RunDirError
from refinery.runtime.files.jsonl import LineIndex, numbered_lines
from refinery.runtime.run.run_dir import RunDir, read_run


class Predictions:
    """The predictions of some finished infer runs. Raises RunDirError for a folder that is not one."""

    def __init__(self, runs: Sequence[Path]) -> None:
        self._files, self._lines = [run / PREDICTIONS_FILE for run in runs], LineIndex()
        for number, run in enumerate(runs):
            if read_run(run)["stage"] != "infer" or not RunDir(run).finished:
                raise RunDirError(f"{run}: is not a finished infer run. Name the output_dir of a finished one.")
            self._index(number, samples=(read_run(run).get("recipe") or {}).get("samples", 1))

    def of(self, question: Question) -> list[Prediction]:
        """Each run's prediction for a question, or its samples, in the order of the runs. Raises RejectedRow if no run has one."""
        return [prediction for predictions in self.by_run(question) for prediction in predictions]

    def by_run(self, question: Question) -> list[list[Prediction]]:
        """The predictions of `of`, those of each run together."""
        found: dict[int, list[Prediction]] = {}
        for file, start in self._lines.find(question.id):
            prediction = _read(self._files[file], start)
            if question.id in (prediction.question_id, question_of(prediction.question_id)):
                found.setdefault(file, []).append(prediction)
        if not found:
            raise RejectedRow("not_decoded", f"no run has an answer to question {question.id}")
        return list(found.values())

    def _index(self, number: int, *, samples: int) -> None:
        for start, line in numbered_lines(self._files[number]):
            values = from_json(line)
            if values.get("failed") is None:
                question_id = values["question_id"] if samples == 1 else question_of(values["question_id"])
                self._lines.add(question_id, start, file=number)


def _read(path: Path, start: int) -> Prediction:
    with path.open("rb") as file:
        file.seek(start)
        return parse_record(file.readline(), Prediction, where=str(path))
