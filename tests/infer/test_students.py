"""Modules and stages played by students of any family: whole runs from recipe to predictions, and from their traces to rows."""

import json

import pytest
import yaml

from distill.__main__ import main as distill
from infer.__main__ import main as infer
from refinery.contract.records import Passage, PromptCompletion, Question, iter_records, read_records, write_records
from refinery.contract.trace import PREDICTIONS_FILE, Prediction
from refinery.prompts.render import render_prompt
from refinery.prompts.replies import student_prompt

STUDENTS = {"migres": ["leaf", "main", "queries"], "re_thinking": ["relevance", "thinking", "query", "answer"]}


@pytest.fixture
def run(tmp_path, tiny_bases):
    """Answer two questions by a decoder; returns its predictions."""

    def run_infer(decoder: str, **values) -> list[Prediction]:
        questions = [Question(id=f"q{i}", text=f"Who directed film {i}?", answers=["x"]) for i in range(2)]
        write_records(tmp_path / "questions.jsonl", questions)
        write_records(tmp_path / "passages.jsonl", [Passage(id=str(i), title=f"film {i}", text=f"film {i} is a film.") for i in range(5)])
        options = {"max_iterations": 2, "reranker": "none", "max_reply_tokens": 6} if decoder == "migres" else {"max_thinking_tokens": 6}
        recipe = {
            "decoder": decoder,
            "questions": [str(tmp_path / "questions.jsonl")],
            "output_dir": str(tmp_path / "run"),
            "llm": {"base": str(tiny_bases["tied"])},
            "retriever": {"passages": str(tmp_path / "passages.jsonl")},
            "max_new_tokens": 3,
            "passages_per_query": 2,
            "keep_prompts": True,
            "options": options | {"students": STUDENTS[decoder]},
        }
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe | values))
        assert infer([str(tmp_path / "recipe.yaml")]) == 0
        return read_records(tmp_path / "run" / PREDICTIONS_FILE, Prediction)

    return run_infer


@pytest.mark.parametrize("family", ["causal", "seq2seq"])
@pytest.mark.parametrize("decoder", STUDENTS)
def test_a_student_of_each_family_plays_every_call(run, decoder, family, tiny_bases, tiny_t5s):
    base = tiny_bases["tied"] if family == "causal" else tiny_t5s["untied"]
    for prediction in run(decoder, llm={"base": str(base)}):
        assert prediction.cost.calls >= 2
        prompts = {step.prompt.name for step in prediction.trace if step.prompt}
        assert prompts
        assert all(name.startswith("student_") for name in prompts if name != "migres_knowledge")


def test_one_module_is_played_by_a_model_of_its_own(run, tiny_t5s, monkeypatch):
    from refinery.llms.engine.seq2seq import Seq2SeqLLM

    asked = []
    real = Seq2SeqLLM.context
    monkeypatch.setattr(Seq2SeqLLM, "context", lambda llm, prompt, **more: (asked.append(prompt.name), real(llm, prompt, **more))[1])
    predictions = run("migres", sub_models={"leaf": {"base": str(tiny_t5s["untied"])}})
    assert set(asked) == {"student_migres_leaf"}
    assert len(asked) == sum(step.name == "leaf" for prediction in predictions for step in prediction.trace)


def test_kept_prompts_read_back_render_what_the_model_read(run):
    for prediction in run("re_thinking"):
        for step in prediction.trace:
            if step.prompt:
                assert step.prompt.name == f"student_re_thinking_{step.name}"
                name = step.prompt.name.removeprefix("student_")
                assert render_prompt(step.prompt.name, **step.prompt.values) == student_prompt(name, **step.prompt.values)
                assert prediction.question in render_prompt(step.prompt.name, **step.prompt.values)


def test_a_run_and_its_rows_for_a_student_go_through_both_commands(run, tmp_path, tiny_bases):
    run("migres", options={"max_iterations": 2, "reranker": "none", "max_reply_tokens": 6})
    answered = read_records(tmp_path / "run" / PREDICTIONS_FILE, Prediction)
    gold = [Question(id=p.question_id, text=p.question, answers=[p.answer]) for p in answered]
    write_records(tmp_path / "questions.jsonl", gold)
    recipe = {
        "task": "traces",
        "questions": [str(tmp_path / "questions.jsonl")],
        "runs": [str(tmp_path / "run")],
        "output_dir": str(tmp_path / "rows"),
        "max_failure_share": 1.0,
        "student": str(tiny_bases["tied"]),
    }
    (tmp_path / "distill.yaml").write_text(yaml.safe_dump(recipe))
    assert distill([str(tmp_path / "distill.yaml")]) == 0
    metrics = json.loads((tmp_path / "rows" / "metrics.json").read_text())
    assert metrics["questions"] == metrics["questions_labelled"] + metrics["questions_rejected"] == 2
    # A random model writes no JSON: its calls failed the decoder's own checks, which is counted; what it says of its own knowledge is text.
    rows = list(iter_records(tmp_path / "rows" / "train.jsonl", PromptCompletion))
    assert {row.step for row in rows} <= {"own_knowledge"}
    assert metrics["rows"] == len(rows)
