"""Select and score the stored answers of a run again, without a model: after a metric changed, or with a different selection."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from infer.evaluation.evaluate import evaluate
from infer.evaluation.finished_runs import open_stored
from infer.evaluation.run_inputs import keep_questions
from infer.evaluation.scores import SCORES_FILE, read_judgements, score
from infer.provenance import questions_hash
from infer.steps.selection import LEARNED, Definition, Fidelity, select_all, selectable, strategies_of
from refinery.contract.records import Question, write_records
from refinery.contract.trace import PREDICTIONS_FILE, Prediction
from refinery.errors import RunDirError
from refinery.runtime.run_dir import RunDir, locked_run


def rescore(
    run: Path,
    *,
    selection: str | None = None,
    fidelity: Fidelity | None = None,
    metrics: Sequence[str] = (),
    questions: Sequence[Question] | None = None,
) -> dict[str, Any]:
    """Rewrite predictions, scores and `metrics.json` of a finished run; its cost and provenance do not change. Returns the metrics.

    `questions` replace those that the run has kept, with other gold answers for example. `metrics` are scored in addition to those of the
    run's recipe. For a run with trees, `selection` and `fidelity` replace the decoder's options, and are recorded in `metrics.json`. Raises
    RunDirError if a question that was answered is not among the questions.
    """
    open_stored(run)
    with locked_run(run):
        return _rescore(run, selection, fidelity, metrics, questions)


def _rescore(
    run: Path, selection: str | None, fidelity: Fidelity | None, added: Sequence[str], given: Sequence[Question] | None
) -> dict[str, Any]:
    stored = open_stored(run)
    recipe, seconds = stored.recipe, stored.metrics["cost"]["seconds"]
    questions = given or stored.questions()
    predictions = answered_in_order(stored.predictions(), questions, run)
    changed = {name: value for name, value in (("selection", selection), ("fidelity", fidelity)) if value}
    if any(prediction and prediction.paths for prediction in predictions):
        decoded = stored.options
        if fidelity and fidelity not in selectable(decoded["fidelity"]):
            raise RunDirError(
                f"{run}: was not decoded with `fidelity: {fidelity}`, which also scores the text that the model only reads. "
                "Decode it again with this fidelity."
            )
        if selection == LEARNED and not all(
            LEARNED in strategies_of(prediction.paths) for prediction in predictions if prediction and prediction.paths
        ):
            raise RunDirError(f"{run}: no selector has judged its trees. Decode it again with a selector (sub_models.selection).")
        options = decoded | changed
        predictions = [p and _reselected(p, q, options) for p, q in zip(predictions, questions, strict=True)]
    elif changed:
        raise RunDirError(f"{run}: decoder '{recipe.decoder}' makes no trees, so there is nothing to select. Drop {', '.join(changed)}.")
    rows = score(recipe.name or recipe.decoder, questions, predictions, read_judgements(run), [*recipe.metrics, *added])
    metrics = {key: value for key, value in stored.metrics.items() if key != "rescored_with"}
    # The run counted knowledge with its tokenizer, which is not loaded here. Runs of versions that did not count it get words.
    kept = next(iter(stored.metrics["results"].values()))
    counted = {"knowledge_unit": kept["knowledge_unit"]} if "knowledge_unit" in kept else {}
    results = evaluate(rows, predictions, seconds=seconds)
    results = {
        system: scores | {"cost_per_question": scores["cost_per_question"] | kept["cost_per_question"]} | counted
        for system, scores in results.items()
    }
    metrics |= {"results": results, "questions_hash": questions_hash(questions)}
    metrics |= {"rescored_with": changed} if changed else {}
    keep_questions(run, questions, predictions)
    write_records(run / PREDICTIONS_FILE, [prediction for prediction in predictions if prediction])
    write_records(run / SCORES_FILE, rows)
    RunDir(run).write_metrics(metrics)
    return metrics


def answered_in_order(predictions: Sequence[Prediction], questions: Sequence[Question], run: Path) -> list[Prediction | None]:
    """Each question's prediction, or None. Raises RunDirError for a prediction whose question is not among them."""
    texts = {question.id: question.text for question in questions}
    for prediction in predictions:
        if texts.get(prediction.question_id) != prediction.question:
            raise RunDirError(
                f"{run}: question '{prediction.question_id}' was answered, but it is not among the questions, or has another text there. "
                "Give the questions that the run answered."
            )
    by_id = {prediction.question_id: prediction for prediction in predictions}
    return [by_id.get(question.id) for question in questions]


def _reselected(prediction: Prediction, question: Question, options: Mapping[str, Any]) -> Prediction:
    if not prediction.paths:  # the question failed
        return prediction
    by = Definition(options["fidelity"], question.choices is not None, options["generator_weight"])
    selected = select_all(prediction.paths, by)
    return prediction.model_copy(update={"selected": selected, "answer": selected[options["selection"]]})
