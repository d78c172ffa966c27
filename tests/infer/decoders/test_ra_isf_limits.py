"""RA-ISF where it ends: at the depth limit, in a cycle, without sub-questions, and what it does not ask or search for there."""

import pytest
from helpers.ra_isf_script import DUNE, LYON, PASSAGES, WHOLE, Model, prompts, role, solve


class Endless(Model):
    """Knows nothing, and decomposes every question into a new one."""

    def __call__(self, text: str):
        if role(text) == "decompose":
            depth = text.count("?")
            return f"\n1. {'Who' + '?' * (depth + 1)}"
        return super().__call__(text)


@pytest.mark.parametrize("max_depth", [0, 1, 3])
def test_at_the_depth_limit_the_sub_answers_are_unknow_and_line_20_still_runs(max_depth):
    prediction, llm, retriever = solve(Endless(), question="Who?", max_depth=max_depth)
    assert len(retriever.calls) == len(prompts(llm, "synthesis")) == max_depth + 1
    assert "Sub-answer: Unknow\n" in prompts(llm, "synthesis")[0]
    assert prediction.answer == "synthesis answer"
    assert [step.depth for step in prediction.trace if step.name == "unresolved"] == [max_depth + 1]


@pytest.mark.parametrize("max_depth", [0, 1, 3])
def test_as_section_3_3_reads_a_question_at_the_depth_limit_is_unknow_and_not_decomposed(max_depth):
    prediction, llm, retriever = solve(Endless(), question="Who?", max_depth=max_depth, unresolved="unknow")
    assert len(retriever.calls) == max_depth + 1
    assert len(prompts(llm, "decompose")) == len(prompts(llm, "synthesis")) == max_depth
    assert prediction.answer == ("Unknow" if max_depth == 0 else "synthesis answer")
    assert [step.depth for step in prediction.trace if step.name == "unresolved"] == [max_depth]


class Branching(Model):
    """Knows nothing, and decomposes every question into three new ones."""

    def __call__(self, text: str):
        if role(text) == "decompose":
            question = text.split("Question: ")[1].split("\n")[0]
            return "".join(f"\n{part}. {question}{part}" for part in (1, 2, 3))
        return super().__call__(text)


@pytest.mark.parametrize(("unresolved", "asked"), [("synthesise", (320, 40, 40)), ("unknow", (266, 13, 13))])
def test_no_decomposition_is_asked_for_that_nobody_reads(unresolved, asked):
    passages = [PASSAGES[0].model_copy(update={"id": str(i)}) for i in range(5)]
    prediction, llm, _ = solve(Branching(), question="Who", passages=passages, unresolved=unresolved)
    assert (prediction.cost.calls, len(prompts(llm, "decompose")), len(prompts(llm, "synthesis"))) == asked


def test_a_question_without_sub_questions_is_answered_from_none_of_them():
    prediction, llm, _ = solve(Model())
    assert prediction.answer == "synthesis answer"
    assert prompts(llm, "synthesis") == [
        f"Base on the sub-question answer, give the answer to the origin question.\nQuestion: {WHOLE}\nAnswer:"
    ]


@pytest.mark.parametrize(("unresolved", "answer"), [("unknow", "Unknow"), ("from_passages", "passages answer")])
@pytest.mark.parametrize("decompositions", [{}, {WHOLE: [WHOLE.upper(), DUNE]}], ids=["into nothing", "into itself"])
def test_what_cannot_be_decomposed_is_unresolved(decompositions, unresolved, answer):
    prediction, llm, _ = solve(Model(decompositions=decompositions), unresolved=unresolved, cycles="stop")
    assert prediction.answer == answer
    assert prompts(llm, "synthesis") == []


def test_an_unresolved_question_may_be_guessed_from_its_passages():
    prediction, llm, _ = solve(Model(), unresolved="from_passages")
    assert prediction.answer == "passages answer"
    assert all(passage.text in prompts(llm, "passages")[0] for passage in PASSAGES)


def test_a_question_that_comes_back_is_solved_again_until_the_depth_limit():
    prediction, llm, retriever = solve(Model(decompositions={WHOLE: [DUNE], DUNE: [WHOLE]}), max_depth=3)
    assert (len(prompts(llm, "synthesis")), retriever.calls) == (4, [WHOLE, DUNE])
    assert prediction.answer == "synthesis answer"


def test_a_cycle_may_be_stopped_where_it_closes():
    model = Model(decompositions={WHOLE: [DUNE], DUNE: [WHOLE, LYON]}, known=[LYON])
    prediction, llm, retriever = solve(model, cycles="stop")
    assert (len(prompts(llm, "synthesis")), retriever.calls) == (2, [WHOLE, DUNE])
    assert prompts(llm, "synthesis")[0].count("Sub-answer: Unknow\n") == 2
    assert [(step.question, step.depth) for step in prediction.trace if step.name == "unresolved"] == [(WHOLE, 2), (LYON, 2)]


def test_where_a_cycle_closes_does_not_depend_on_which_question_came_first():
    decompositions = {WHOLE: ["B?", "C?"], "B?": ["D?"], "C?": ["D?"], "D?": ["B?"]}
    _, llm, _ = solve(Model(decompositions=decompositions), cycles="stop")
    _, swapped, _ = solve(Model(decompositions=decompositions | {WHOLE: ["C?", "B?"]}), cycles="stop")
    below = [{prompt for prompt in prompts(one, "synthesis") if WHOLE not in prompt} for one in (llm, swapped)]
    assert below[0] == below[1]


def test_questions_that_decompose_into_each_other_end():
    model = Model(decompositions={WHOLE: [DUNE, LYON], DUNE: [LYON], LYON: [DUNE]})
    for cycles in ("solve", "stop"):
        prediction, _, retriever = solve(model, cycles=cycles)
        assert sorted(retriever.calls) == sorted([WHOLE, DUNE, LYON])
        assert prediction.answer == "synthesis answer"


def test_equal_sub_questions_are_asked_once():
    _, llm, retriever = solve(Model(decompositions={WHOLE: [DUNE, DUNE, LYON]}, relevant={DUNE: ["Dune"]}), max_depth=1)
    assert retriever.calls == [WHOLE, DUNE, LYON]
    assert len(prompts(llm, "passages")) == 1
    assert prompts(llm, "synthesis")[-1].count("Sub-answer: passages answer") == 2


def test_sub_questions_in_other_letters_are_other_questions():
    _, _, retriever = solve(Model(decompositions={WHOLE: [DUNE, DUNE.lower()]}), max_depth=1)
    assert retriever.calls == [WHOLE, DUNE, DUNE.lower()]


def test_what_is_known_of_a_question_holds_at_every_depth():
    model = Model(decompositions={WHOLE: [DUNE, LYON], DUNE: [LYON]})
    _, llm, retriever = solve(model)
    assert sorted(retriever.calls) == sorted([WHOLE, DUNE, LYON])
    assert len(prompts(llm, "know")) == len(prompts(llm, "decompose")) == 3


def test_without_decomposition_irrelevant_passages_give_unknow():
    assert solve(Model(decompositions={WHOLE: [DUNE]}), no_decomposition=True)[0].answer == "Unknow"


def test_without_relevance_a_question_is_decomposed_at_once():
    model = Model(known=[DUNE], relevant={WHOLE: ["Dune"]}, decompositions={WHOLE: [DUNE]})
    prediction, llm, _ = solve(model, no_passage_relevance=True)
    assert prompts(llm, "passages") == []
    assert prediction.answer == solve(model.__class__(known=[DUNE], decompositions={WHOLE: [DUNE]}))[0].answer


@pytest.mark.parametrize(("unresolved", "searched"), [("synthesise", []), ("unknow", []), ("from_passages", [DUNE])])
def test_without_relevance_only_what_is_read_is_searched(unresolved, searched):
    model = Model(decompositions={WHOLE: [DUNE]})
    assert solve(model, no_passage_relevance=True, max_depth=1, unresolved=unresolved)[2].calls == searched


@pytest.mark.parametrize(("length", "searched"), [(3, "Dune born?"), (8, WHOLE), (64, WHOLE), (None, WHOLE)])
def test_a_query_is_the_end_of_a_long_question(length, searched):
    assert solve(Model(), retrieval_length=length)[2].calls == [searched]
