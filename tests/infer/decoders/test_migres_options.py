"""What MIGRES' options change, with a scripted model and a scripted retriever."""

import asyncio

import pytest
from helpers.migres_script import FILM, LYON, NEVER, OTHER, PERSON, WHOLE, Model, asked, extract, line, prompts, solve, titles

from infer.decoders.migres import Options, decode, roles
from infer.session import Session
from refinery.contract.records import Passage, Question
from refinery.errors import RecipeError
from refinery.llms.fake import FakeLLM
from refinery.retrievers.fake import FakeRetriever
from refinery.runtime.recipe import build_recipe
from refinery.tasks.relevance import IRRELEVANT, RELEVANT, relevance_prompt


def test_without_the_sentence_filter_passages_are_read_whole():
    _, llm, _ = solve(compression="none")
    assert PERSON.text in prompts(llm, "leaf")[1]


def test_without_knowledge_prompting_nobody_asks_for_own_knowledge():
    _, llm, _ = solve(Model(**NEVER), found={WHOLE: [OTHER]}, no_knowledge_prompting=True, max_iterations=2)
    assert "knowledge" not in asked(llm)


def test_without_a_reranker_the_first_passages_are_read_whole_in_their_order():
    _, llm, _ = solve(found={WHOLE: [OTHER, PERSON, FILM]}, reranker="none", passages_in_prompt=2, relevance_threshold=99)
    assert titles(prompts(llm, "leaf")[0]) == ["Oslo", "Maria Torvel"]
    assert PERSON.text in prompts(llm, "leaf")[0]


def relevance(**shares: float) -> FakeLLM:
    """A relevance judge that knows how probable it finds passages (by title) and sentences (by their first word) relevant, else 0.1."""

    def script(text: str) -> dict[str, float]:
        named = line("Title", text) or line("Text", text)
        share = next((share for start, share in shares.items() if named.startswith(start)), 0.1)
        return {RELEVANT: share, IRRELEVANT: 1 - share}

    return FakeLLM(script)


def test_a_judges_threshold_is_a_probability():
    judge = relevance(Dune=0.7, Oslo=0.6)
    options = {"reranker": "judge", "sub_models": {"reranker": judge}, "max_iterations": 1, "compression": "none"}
    for threshold, read in ((0.5, ["Dune", "Oslo"]), (0.65, ["Dune"])):
        prediction, llm, _ = solve(relevance_threshold=threshold, **options)
        assert titles(prompts(llm, "leaf")[0]) == read
        kept = next(step for step in prediction.trace if step.name == "filter").passages
        assert [passage.retrieval_score for passage in kept] == [0.7, 0.6][: len(read)]


def test_a_judge_reads_sentences_without_their_title():
    judge = relevance(Maria=0.9)
    _, llm, _ = solve(found={WHOLE: [PERSON]}, reranker="judge", relevance_threshold=0.5, sub_models={"reranker": judge}, max_iterations=1)
    assert [line("Title", text) for text in judge.texts("label_probs")] == ["Maria Torvel", "", "", ""]
    assert "(Title: Maria Torvel) Maria Torvel was born in Lyon.\n" in prompts(llm, "leaf")[0]


@pytest.mark.parametrize(("share", "information"), [(0.5, LYON), (0.49, "(none)")])
@pytest.mark.parametrize("entailment", ["nli", "judge"])
def test_information_is_entailed_from_a_probability_of_one_half_on(entailment, share, information):
    def script(text: str) -> dict[str, float]:
        if entailment == "judge":
            assert text == relevance_prompt(LYON, FILM)
            return {RELEVANT: share, IRRELEVANT: 1 - share}
        assert text == f"premise: Dune {FILM.text} hypothesis: {LYON}"
        return {"1": share, "0": 1 - share}

    model = Model(leaf=extract((LYON, [1])))
    prediction, llm, _ = solve(model, entailment=entailment, sub_models={"entailment": FakeLLM(script)}, max_iterations=1)
    assert line("Information", prompts(llm, "main")[0]) == information
    noted = [step.probabilities for step in prediction.trace if step.name == "not_entailed"]
    assert noted == ([{"entailed": share}] if information == "(none)" else [])
    assert prediction.cost.calls == 2  # leaf and main: a label read is no call of Table 4


@pytest.mark.parametrize("threshold", [{}, {"relevance_threshold": 3.0}, {"relevance_threshold": -0.1}])
def test_a_judge_with_another_rerankers_threshold_is_refused(threshold):
    with pytest.raises(RecipeError, match="relevance_threshold.*must be a probability.*such as 0.5"):
        build_recipe({"reranker": "judge"} | threshold, Options, where="recipe.yaml: options")


@pytest.mark.parametrize(
    ("options", "needs", "required"),
    [
        ({}, {}, ()),
        ({"entailment": "llm"}, {"entailment": frozenset()}, ()),
        ({"entailment": "nli"}, {"entailment": frozenset({"label_logprobs"})}, ("entailment",)),
        ({"reranker": "judge", "relevance_threshold": 0.5}, {"reranker": frozenset({"label_logprobs"})}, ("reranker",)),
    ],
)
def test_a_role_is_asked_for_what_the_options_make_of_it(options, needs, required):
    modules = dict.fromkeys(("leaf", "main", "queries"), frozenset())
    found = roles(Options(**options))
    assert {name: role.needs for name, role in found.items()} == modules | needs
    assert tuple(name for name, role in found.items() if role.required) == required


def test_a_threshold_above_every_score_leaves_no_passage():
    assert solve(relevance_threshold=99.0, max_iterations=1)[0].trace[1].passages == []


@pytest.mark.parametrize("yes_no", [True, False])
def test_a_yes_no_question_says_so(yes_no):
    assert ('is "yes" or "no"' in prompts(solve(yes_no=yes_no)[1], "main")[0]) == yes_no


def test_the_defaults_are_table_11s():
    options = Options()
    assert (options.max_iterations, options.passages_in_prompt) == (5, 5)


@pytest.mark.parametrize(("compression", "mark"), [("summ", "Summary:"), ("snippet", "Extract:")])
def test_a_compression_by_the_model_is_what_the_leaf_reads(compression, mark):
    class Shortening(Model):
        def __call__(self, text):
            return ("irrelevant" if OTHER.text in text else "It is short.") if text.endswith(mark) else super().__call__(text)

    prediction, llm, _ = solve(Shortening(), found={WHOLE: [FILM, OTHER]}, compression=compression, relevance_threshold=0.0)
    leaf = next(call.text for call in llm.calls if call.text.startswith("Given the following"))
    assert "Passage 1: (Title: Dune) It is short." in leaf
    assert OTHER.text not in leaf
    assert len([step for step in prediction.trace if step.name == compression]) >= 2


def test_demonstrations_stand_before_the_question_of_every_module():
    class Shown(Model):
        def __call__(self, text):
            instruction, demonstrated, rest = text.partition("Question: Which city is the founder")
            return super().__call__(instruction + rest.rpartition("\n\n")[2] if demonstrated else text)

    prediction, llm, _ = solve(Shown(), examples="few")
    assert prediction.answer == "Lyon"
    for name in ("leaf", "main", "queries"):
        assert all("Edith Marlow" in prompt.rpartition("Question: ")[0] for prompt in prompts(llm, name)), name


def test_what_a_small_model_reads_is_fitted_after_the_filter_has_chosen():
    long = [Passage(id=str(i), title=f"film {i}", text=f"Dune director {i} " + "word " * 300) for i in range(50)]

    class SmallModel(FakeLLM):
        context_limit = 1200

    llm = SmallModel(Model(leaf=extract()))
    session = Session(question=Question(id="q", text=WHOLE), llm=llm, retriever=FakeRetriever(lambda query: long), passages_per_query=50)
    prediction = asyncio.run(decode(session.question, session, Options(max_iterations=1, passages_in_prompt=2, reranker="none")))
    (read,) = [step for step in prediction.trace if step.name == "filter"]
    assert [len(passage.text.split()) > 250 for passage in read.passages] == [True, True]
