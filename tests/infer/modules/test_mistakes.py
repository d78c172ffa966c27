"""What wrong replies cost: each measure counts the mistake that it names, and a reply that cannot be read is a mistake too."""

import json

import pytest
from helpers.module_script import line

SUB, WHOLE = "annotated sub-questions", "questions"


def test_replies_that_cannot_be_read_are_wrong_and_counted(evaluated, measure):
    lines = evaluated("migres", "main", lambda prompt: "I like tea.", limit=4)
    assert measure(lines["all information"], "EM", "unparsed") == [0.0, 1.0]
    assert measure(lines["part of the information"], "unanswerable", "unparsed") == [0.0, 1.0]


def test_a_main_module_that_always_answers_is_right_with_all_information_only(evaluated, measure, gold):
    def reply(prompt: str) -> str:
        return json.dumps({"answer": gold.questions[line(prompt, "Question")].answers[0]})

    lines = evaluated("migres", "main", reply, limit=6)
    assert measure(lines["all information"], "EM") == [1.0]
    assert measure(lines["part of the information"], "unanswerable") == [0.0]
    assert "search: what it wrote" not in lines  # nothing is missing, so there is nothing to search with


def test_a_query_that_states_the_answer_has_leaked(evaluated, measure, gold):
    def reply(prompt: str) -> str:
        answer = (gold.questions[line(prompt, "Original Question")].decomposition or [])[-1].answer
        return json.dumps({"queries": [f"Is it {answer}?"]})

    lines = evaluated("migres", "queries", reply)
    assert measure(lines["search: what it wrote"], "leaked")[0] > 0.8


def test_a_judge_of_passages_that_calls_all_relevant_has_full_recall_and_low_precision(evaluated, measure):
    lines = evaluated("ra_isf", "relevance", lambda prompt: "relevant", limit=8)
    precision, recall, auc = measure(lines[SUB], "precision", "recall", "AUC")
    assert (recall, auc) == (1.0, 0.5)
    assert precision < 0.5


def test_a_decomposition_without_sub_questions_misses_all(evaluated, measure):
    lines = evaluated("ra_isf", "decomposition", lambda prompt: "No.", limit=4)
    assert measure(lines[SUB], "recall", "F1", "same count", "unparsed") == [0.0, 0.0, 0.0, 1.0]
    assert measure(lines["search: its sub-questions"], "coverage") == [0.0]


def test_information_that_no_passage_entails_is_left_out_of_the_second_line(evaluated, measure, gold):
    def reply(prompt: str) -> str:
        return '{"entails": false}' if "Premise:" in prompt else gold(prompt)

    lines = evaluated("migres", "leaf", reply, options={"entailment": "llm"})
    assert measure(lines["cited passages"], "recall") == [1.0]
    assert measure(lines["cited passages that entail it"], "recall") == [0.0]


def test_a_judge_says_what_words_cannot_and_costs_the_module_nothing(evaluated, measure, gold, tmp_path):
    seen: list[str] = []

    def reply(prompt: str) -> str:
        if "candidate questions" in prompt:
            seen.append(prompt)
            return "Index: [1]\nExplanation: it asks for it." if len(seen) % 2 else "Index: []"
        return "Yes" if "Output Yes or No" in prompt else gold(prompt)

    alone = evaluated("migres", "main", reply, limit=8, output_dir=str(tmp_path / "alone"))
    seen.clear()
    judged = evaluated("migres", "main", reply, limit=8, judged=True)
    assert measure(judged["all information"], "judged right") == [1.0]
    assert 0.3 < measure(judged["part of the information"], "judged match")[0] < 0.7
    assert judged["all information"]["cost_per_question"] == alone["all information"]["cost_per_question"]


def test_a_student_is_asked_with_its_own_prompt(evaluated, measure):
    seen: list[str] = []

    def reply(prompt: str) -> str:
        seen.append(prompt)
        return "unanswerable. Missing: the year"

    lines = evaluated("migres", "main", reply, limit=4, options={"students": ["main"]})
    assert not any("JSON" in prompt for prompt in seen)
    assert measure(lines["part of the information"], "unanswerable", "unparsed") == [1.0, 0.0]


@pytest.mark.parametrize(
    ("decoder", "module", "options", "line"),
    [
        ("ra_isf", "self_knowledge", {}, WHOLE),
        ("ra_isf", "relevance", {}, SUB),
        ("ra_isf", "relevance", {"relevance": "listwise"}, SUB),
        ("ra_isf", "answer", {}, WHOLE),
        ("migres", "leaf", {"entailment": "llm"}, "cited passages"),
    ],
)
def test_a_model_that_refuses_all_leaves_every_case_unparsed_and_none_twice(decoder, module, options, line, evaluated, measure):
    lines = evaluated(decoder, module, lambda prompt: "I'm sorry, but I can't help with that.", limit=4, options=options)
    assert measure(lines[line], "unparsed") == [1.0]


@pytest.mark.parametrize(
    ("decoder", "module", "files", "said"),
    [
        ("migres", "mian", None, "decoder 'migres' has no module 'mian'. Did you mean 'main'? Modules: leaf, main, queries"),
        ("direct", "main", None, "no modules of decoder 'direct'"),
        ("migres", "main", ["hotpotqa/train.json"], "none of 16 questions has sub-questions, which module 'main' is measured by."),
    ],
)
def test_what_cannot_be_measured_is_refused_in_one_line(evaluated, sample, decoder, module, files, said):
    values = {"questions": [str(sample / name) for name in files]} if files else {}
    error = evaluated(decoder, module, **values)
    assert said in error
    assert error.count("error:") == 1


def test_a_resumed_run_asks_only_what_has_failed(evaluated, gold):
    asked: list[str] = []

    def reply(prompt: str) -> str:
        asked.append(prompt)
        return gold(prompt)

    first = evaluated("ra_isf", "decomposition", reply, limit=6)
    assert isinstance(evaluated("ra_isf", "decomposition", reply, limit=6), str)  # it already exists
    count = len(asked)
    again = evaluated("ra_isf", "decomposition", reply, "--resume", limit=6)
    assert (again, len(asked)) == (first, count)
