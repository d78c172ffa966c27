"""The infer stage as a user runs it, on tiny random checkpoints."""

import json
from pathlib import Path

import pytest
import yaml

from infer.__main__ import main
from infer.evaluation.scores import SCORES_FILE, QuestionScores
from refinery.contract.records import Passage, Question, read_records, write_records
from refinery.contract.trace import PREDICTIONS_FILE, Prediction
from refinery.prompts.render import prompt_hash

QUESTIONS = [Question(id=f"q{i}", text=f"Who directed film {i}?", answers=[f"Maria {i}"], split="test") for i in range(30)]
PASSAGES = [Passage(id=str(i), title=f"film {i}", text=f"film {i} is a film directed by Maria {i}.") for i in range(30)]


@pytest.fixture
def recipe(tmp_path, tiny_bases):
    """Write data and a recipe; the values given replace or extend those of a `rag` run."""

    def write(**values) -> Path:
        write_records(tmp_path / "questions.jsonl", QUESTIONS)
        write_records(tmp_path / "passages.jsonl", PASSAGES)
        recipe = {
            "decoder": "rag",
            "questions": [str(tmp_path / "questions.jsonl")],
            "output_dir": str(tmp_path / "run"),
            "llm": {"base": str(tiny_bases["tied"])},
            "retriever": {"passages": str(tmp_path / "passages.jsonl")},
            "max_new_tokens": 4,
        }
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe | values))
        return tmp_path / "recipe.yaml"

    return write


def test_a_metric_of_ones_own_is_named_in_the_recipe(recipe, tmp_path, monkeypatch):
    (tmp_path / "my_lab_metric.py").write_text("def words(prediction, answers):\n    return 0.25\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert main([str(recipe(metrics=["my_lab_metric:words"]))]) == 0
    scores = json.loads((tmp_path / "run" / "metrics.json").read_text())["results"]["rag"]["all"]["metrics"]
    assert scores["my_lab_metric:words"]["mean"] == 25
    assert scores.keys() >= {"em.squad", "f1.squad"}


def test_a_sample_is_answered_without_the_rows_that_cannot_be_read(recipe, tmp_path):
    path = recipe(sample=5, on_bad_row="skip", decoder="direct", retriever=None)
    with (tmp_path / "questions.jsonl").open("a") as file:
        file.write('{"id": "odd"}\n')
    assert main([str(path)]) == 0
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert (metrics["questions"], metrics["sample"]["size"], metrics["bad_rows"]["skipped"]) == (5, 5, 1)
    assert "questions.jsonl:31: field 'text': is missing" in metrics["bad_rows"]["first"][0]


def test_a_metric_that_is_not_there_stops_the_run_before_a_model_loads(recipe, capsys):
    assert main([str(recipe(metrics=["em.sqaud"], llm={"base": "no such folder"}))]) == 2
    assert "no metric 'em.sqaud'. Did you mean 'em.squad'?" in capsys.readouterr().err


def predictions(run: Path) -> list[Prediction]:
    return read_records(run / PREDICTIONS_FILE, Prediction)


def one_error_line(stderr: str) -> str:
    lines = [line for line in stderr.splitlines() if line and "Loading weights" not in line]  # transformers' progress bar
    assert len(lines) == 1, stderr
    assert lines[0].startswith("error: ")
    return lines[0]


@pytest.mark.parametrize(("decoder", "retrievals"), [("direct", 0), ("rag", 1), ("ra_isf", 1)])
def test_predictions_come_in_question_order_with_their_costs(recipe, tmp_path, decoder, retrievals):
    assert main([str(recipe(decoder=decoder, limit=6, questions_in_flight=4))]) == 0
    answered = predictions(tmp_path / "run")
    assert [prediction.question_id for prediction in answered] == [question.id for question in QUESTIONS[:6]]
    assert all(prediction.cost.retrievals >= retrievals * (decoder == "rag") for prediction in answered)
    assert not list((tmp_path / "run").glob("*.ledger*"))


def test_metrics_are_named_after_the_run(recipe, tmp_path):
    assert main([str(recipe(name="vanilla", limit=2))]) == 0
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert (list(metrics["results"]), metrics["questions"]) == (["vanilla"], 2)


def test_metrics_say_what_their_numbers_depend_on(recipe, tmp_path, tiny_bases):
    assert main([str(recipe(limit=4, passages_per_query=3))]) == 0
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert (metrics["decoder"], metrics["retriever"], metrics["passages_per_query"]) == ("rag", "bm25", 3)
    assert metrics["model"]["name"] == str(tiny_bases["tied"])
    assert all(len(fingerprint) == 16 for fingerprint in (metrics["questions_hash"], metrics["corpus_hash"], metrics["model"]["revision"]))
    assert metrics["prompts"]["answer_with_passages"] == prompt_hash("answer_with_passages")
    assert metrics["cost"]["retrievals"] == 4
    assert {"mean", "low", "high", "questions"} == set(metrics["results"]["rag"]["all"]["metrics"]["em.squad"])


def test_scores_are_kept_for_every_question(recipe, tmp_path):
    assert main([str(recipe(limit=3))]) == 0
    rows = read_records(tmp_path / "run" / SCORES_FILE, QuestionScores)
    assert [row.question_id for row in rows] == ["q0", "q1", "q2"]
    assert all({"em.squad", "f1.squad"} <= set(row.scores["rag"]) for row in rows)


def test_how_many_questions_are_in_flight_changes_no_answer(recipe, tmp_path):
    for in_flight in (1, 30):
        assert main([str(recipe(output_dir=str(tmp_path / f"run{in_flight}"), questions_in_flight=in_flight))]) == 0
    assert [p.answer for p in predictions(tmp_path / "run1")] == [p.answer for p in predictions(tmp_path / "run30")]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"decoder": "rq_rga"}, "no decoder 'rq_rga'. Did you mean 'rq_rag'? Available: "),
        ({"decoder": "ra_isf", "options": {"max_dept": 3}}, "options.max_dept: unknown key. Did you mean 'max_depth'?"),
        ({"decoder": "ra_isf", "options": {"max_depth": -1}}, "options.max_depth: Input should be greater than or equal to 0"),
        ({"retriever": None}, "retriever: is missing, and decoder 'rag' needs it."),
        ({"questions": ["absent.jsonl"]}, "absent.jsonl: cannot be read (No such file or directory)."),
        ({"llm": {"bas": "x"}}, "llm.bas: unknown key. Did you mean 'base'?"),
        ({"top_k": 5}, "top_k: unknown key. It is called 'passages_per_query' here."),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(recipe, tmp_path, capsys, values, message):
    assert main([str(recipe(**values))]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"retriever": {"passages": "absent.jsonl"}}, "absent.jsonl: cannot be read (No such file or directory)."),
        ({"llm": {"base": "absent"}}, "absent: there is no such folder, and HF_HUB_OFFLINE is set"),
        ({"retriever": {"name": "bm52"}}, "no retriever 'bm52'. Did you mean 'bm25'?"),
    ],
)
def test_a_missing_part_leaves_nothing_that_looks_whole(recipe, tmp_path, capsys, values, message):
    assert main([str(recipe(**values))]) == 2
    assert message in one_error_line(capsys.readouterr().err)
    assert not {"metrics.json", PREDICTIONS_FILE} & {path.name for path in (tmp_path / "run").glob("*")}


def test_a_checkpoint_without_control_tokens_is_refused_before_decoding(recipe, tmp_path, capsys, tiny_bases):
    assert main([str(recipe(decoder="rq_rag"))]) == 2
    message = f"{tiny_bases['tied']}: its tokenizer lacks control token '[A_Response]'. Name a checkpoint that was trained with this"
    assert message in one_error_line(capsys.readouterr().err)
    assert not (tmp_path / "run").exists()


def test_rq_rag_answers_with_a_checkpoint_that_has_them(recipe, tmp_path, tiny_model, control_tokenizer):
    tiny_model.save_pretrained(tmp_path / "model")
    control_tokenizer.save_pretrained(tmp_path / "model")
    values = {"decoder": "rq_rag", "llm": {"base": str(tmp_path / "model")}, "options": {"max_depth": 1, "max_query_tokens": 4}}
    assert main([str(recipe(**values, limit=3))]) == 0
    results = json.loads((tmp_path / "run" / "metrics.json").read_text())["results"]
    assert list(results) == ["rq_rag_ppl", "rq_rag_confidence", "rq_rag_ensemble", "rq_rag_upper_bound"]
    assert [len(prediction.paths) for prediction in predictions(tmp_path / "run")] == [4, 4, 4]


def test_a_run_in_the_way_is_refused(recipe, capsys):
    path = str(recipe(limit=1))
    assert (main([path]), main([path])) == (0, 2)
    assert "already contains a run. Pass --resume to continue it" in capsys.readouterr().err


def test_a_dry_run_shows_every_option_and_loads_no_model(recipe, tmp_path, capsys):
    assert main([str(recipe(decoder="ra_isf", llm={"base": "absent"})), "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "relevance_threshold: 0.5" in printed
    assert QUESTIONS[2].text in printed
    assert not (tmp_path / "run").exists()


def test_a_multiple_choice_question_is_asked_with_its_choices_and_kept_without(tmp_path, tiny_bases):
    question = Question(id="q", text="Which is red", choices=["sky", "blood"], answers=["B"])
    write_records(tmp_path / "questions.jsonl", [question])
    recipe = {
        "decoder": "direct",
        "questions": [str(tmp_path / "questions.jsonl")],
        "output_dir": str(tmp_path / "run"),
        "llm": {"base": str(tiny_bases["tied"])},
        "max_new_tokens": 2,
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    assert main([str(tmp_path / "recipe.yaml")]) == 0
    assert "accuracy.choice" in read_records(tmp_path / "run" / SCORES_FILE, QuestionScores)[0].scores["direct"]
    (prediction,) = read_records(tmp_path / "run" / PREDICTIONS_FILE, Prediction)
    assert prediction.question == "Which is red"
    assert prediction.trace[0].question == "Which is red?\nPlease choose from following options:\nA: sky\nB: blood"
