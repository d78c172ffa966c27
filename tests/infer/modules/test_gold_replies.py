"""A module that replies with the annotations themselves measures 100 %, whatever its kind."""

import pytest

SUB, WHOLE = "annotated sub-questions", "questions"
CASES = [
    ("ra_isf", "relevance", {}, {SUB: ["precision", "recall", "F1", "accuracy", "AUC"], WHOLE: ["precision", "recall", "F1", "AUC"]}),
    ("ra_isf", "relevance", {"relevance": "listwise"}, {SUB: ["precision", "recall", "F1"], WHOLE: ["precision", "recall", "F1"]}),
    ("ra_isf", "self_knowledge", {}, {SUB: ["precision", "recall", "accuracy"], WHOLE: ["precision", "recall", "accuracy"]}),
    ("ra_isf", "decomposition", {}, {SUB: ["precision", "recall", "F1", "same count"]}),
    ("ra_isf", "answer", {}, {SUB: ["EM", "F1", "contains"], WHOLE: ["EM", "F1"]}),
    ("re_thinking", "relevance", {}, {SUB: ["precision", "recall"], WHOLE: ["precision", "recall"]}),
    ("rag", "answer", {}, {SUB: ["EM", "F1", "contains"], WHOLE: ["EM", "F1"]}),
    ("least_to_most", "decomposition", {}, {SUB: ["precision", "recall", "F1"]}),
    ("migres", "leaf", {"entailment": "llm"}, {"cited passages": ["precision", "recall"], "cited passages that entail it": ["recall"]}),
    ("migres", "main", {}, {"all information": ["EM", "F1"], "part of the information": ["unanswerable"]}),
    ("migres", "own_knowledge", {}, {SUB: ["contains"], WHOLE: ["contains"]}),
]


@pytest.mark.parametrize(("decoder", "module", "options", "measured"), CASES)
def test_gold_replies_are_all_right(evaluated, measure, decoder, module, options, measured):
    lines = evaluated(decoder, module, options=options)
    for on, names in measured.items():
        assert measure(lines[on], *names) == [1.0] * len(names), on
        assert lines[on]["measures"].get("unparsed", {"mean": 0.0})["mean"] == 0.0
    assert all(line["failed"] == 0 for line in lines.values())


@pytest.mark.parametrize(("decoder", "module"), [("migres", "main"), ("migres", "queries"), ("re_thinking", "query")])
def test_the_next_sub_question_finds_more_than_the_question(evaluated, measure, decoder, module):
    lines = evaluated(decoder, module)
    of_module, annotated, question = (measure(lines[f"search: {name}"], "found@1", "found@5") for name in WRITTEN)
    assert of_module == annotated
    assert all(more > less for more, less in zip(annotated, question, strict=True))


def test_a_filter_leaves_fewer_passages_of_the_first_search_of_which_more_help(evaluated, measure, tmp_path):
    def measured(name: str, threshold: float) -> dict:
        options = {"reranker": "lexical", "relevance_threshold": threshold}
        return evaluated("migres", "first_search", options=options, output_dir=str(tmp_path / name))["questions"]

    counted = ("passages", "positive per negative", "found")
    every, filtered = measure(measured("all", -1.0), *counted), measure(measured("some", 2.0), *counted)
    assert every[0] == 5.0  # all that a search returns
    assert filtered[0] < every[0]
    assert filtered[1] > every[1]
    # Where no passage passes, there is no ratio, and what the scripted model says that it knows counts.
    nothing = measured("none", 1e6)
    passages, found = measure(nothing, "passages", "found")
    assert passages == 0.0
    assert found > 0.5
    assert "positive per negative" not in nothing["measures"]


WRITTEN = ("what it wrote", "the annotated sub-question", "the question")


def test_annotated_sub_questions_cover_what_they_find_themselves(evaluated, measure):
    lines = evaluated("ra_isf", "decomposition")
    its_own, annotated, question = (
        measure(lines[f"search: {name}"], "coverage")[0] for name in ("its sub-questions", "annotated sub-questions", "the question")
    )
    assert its_own == pytest.approx(annotated, abs=0.05)  # relations are worded as questions where there is a rule
    assert annotated > question
