"""Every prompt-only decoder with a model behind a chat server that misbehaves: each question ends, and what went wrong is counted."""

import asyncio
import json
from collections.abc import Callable
from importlib import import_module

import pytest
from helpers.scripted_server import scripted

from infer.__main__ import main
from infer.evaluation.evaluate import count_faults
from infer.session import Session
from refinery.contract.records import KnowledgeLabel, Passage, Question, read_records, write_records
from refinery.contract.trace import PREDICTIONS_FILE, Prediction
from refinery.demo.teacher.server import ChatServer, Faults, serving
from refinery.llms.build import build_llm
from refinery.llms.engine.huggingface import HuggingFaceLLM
from refinery.llms.fake import FakeLLM
from refinery.llms.served.endpoint import EndpointConfig, UnusableEndpoint
from refinery.retrievers.fake import FakeRetriever

QUESTION = Question(id="q", text="Where was the director of Dune born?", answers=["Lyon"])
PASSAGES = [
    Passage(id="film", title="Dune", text="Dune is a film directed by Maria Torvel."),
    Passage(id="person", title="Maria Torvel", text="Maria Torvel was born in Lyon."),
]
# By method its options, and the most calls that it may make for a question with two passages a search.
METHODS = {
    "direct": ({}, 1),
    "rag": ({}, 1),
    "skr": ({}, 1),
    "chain_of_thought": ({}, 1),
    "chain_of_note": ({}, 1),
    "plan_and_solve": ({}, 1),
    "self_criticism": ({}, 3),
    "iter_retgen": ({}, 2),
    "least_to_most": ({}, 1 + 6 + 1),
    "self_ask": ({}, 4 + 1),
    "react": ({}, 5 + 1),
    "ircot": ({}, 8 + 1),
    "alce": ({}, 1),
    "alce summ": ({"strategy": "summ"}, 2 + 1),
    "alce rerank": ({"strategy": "rerank"}, 4),
    "re_thinking": ({"relevance": "filter"}, 4),
    # Leaf and main in every iteration and queries between them, each twice at most, and own knowledge.
    "migres": ({"max_iterations": 3, "reranker": "none"}, 3 * (2 + 2 + 1) + 2 * 2),
    "migres summ": ({"max_iterations": 3, "reranker": "none", "compression": "summ"}, 3 * (2 + 2 + 2 + 1) + 2 * 2),
}


def ask(method: str, reply: Callable[[str], str], labels, *, faults: Faults | None = None) -> tuple[Prediction, ChatServer]:
    with serving(reply, faults=faults) as server:
        return decoded(method, server.base_url, labels), server


def decoded(method: str, url: str, labels) -> Prediction:
    options, _ = METHODS[method]
    decoder = import_module(f"infer.decoders.{method.split()[0]}")
    options = options | ({"labels": labels} if method == "skr" else {})

    async def run() -> Prediction:
        llm = build_llm(EndpointConfig(base_url=url, model="scripted"))
        session = Session(question=QUESTION, llm=llm, retriever=FakeRetriever(lambda query: PASSAGES), passages_per_query=2)
        try:
            return await asyncio.wait_for(decoder.decode(QUESTION, session, decoder.Options(**options)), timeout=60)
        finally:
            await llm.close()

    return asyncio.run(run())


@pytest.fixture(scope="module")
def labels(tmp_path_factory):
    """Self-knowledge labels, by which SKR retrieves."""
    path = tmp_path_factory.mktemp("skr") / "labels.jsonl"
    write_records(path, [KnowledgeLabel(question_id="a", question=QUESTION.text, label="unknow")])
    return path


SENTENCE = "It is hard to say, and the answer may well be Lyon."
PROSE = "It is hard to say.\nPerhaps Lyon"
SPEAKER = "<|user|>\nWho?</s>\n<|assistant|>\n[A_Response] Lyon [EOS]\nUser: [/R_Evidences]"
# By fault what the server says, how it misbehaves, and the reasons it counts for methods that read plain words, and for MIGRES.
FAULTS = {
    "prose": (PROSE, None, set(), {"malformed"}),
    "nothing": ("", None, {"empty"}, {"empty"}),
    "a refusal in words": (SENTENCE, Faults(refuse_every=1), {"refused"}, {"refused"}),
    "the token limit": (SENTENCE, Faults(truncate_every=1), {"truncated"}, {"truncated"}),
    "another speaker": (SPEAKER, None, {"speaker"}, {"malformed"}),
}
# A reply that is one whole answer, or that is only read on, may be anything.
TAKES_ANYTHING = {"direct", "rag", "skr", "re_thinking"}
# What follows from a reply that has words but no form: the answer, the action or the simpler questions are not found in it.
FOLLOWS = {"unparsed", "no_action", "repeated"}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("method", METHODS)
def test_a_faulty_teacher_leaves_an_answer_and_a_count_within_the_methods_calls(method, fault, labels):
    says, faults, plain, json_modules = FAULTS[fault]
    prediction, server = ask(method, lambda prompt: says, labels, faults=faults)
    counted = set(count_faults([prediction]))
    reasons = json_modules | (plain if "summ" in method else set()) if method.startswith("migres") else plain
    assert counted - FOLLOWS == reasons
    if fault == "prose" and not method.startswith("migres"):
        assert bool(counted & FOLLOWS) == (method not in TAKES_ANYTHING)
    assert prediction.answer
    if fault in ("nothing", "a refusal in words"):
        assert prediction.answer == "unknown"
    assert server.requests == prediction.cost.calls <= METHODS[method][1]


@pytest.mark.parametrize("method", sorted(METHODS))
def test_refused_requests_leave_an_answer_and_are_counted(method, labels):
    filtered = (400, {"error": {"message": "The prompt was filtered.", "code": "content_filter"}})
    with scripted(lambda body: filtered) as server:
        prediction = decoded(method, server.base_url, labels)
        assert len(server.bodies) == prediction.cost.calls <= METHODS[method][1]
    assert (set(count_faults([prediction])) - FOLLOWS, prediction.answer) == ({"refused"}, "unknown")


@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_server_that_refuses_everything_stops_the_method(method, labels):
    with pytest.raises(UnusableEndpoint, match="refuses every request in the same way"):
        ask(method, lambda prompt: SENTENCE, labels, faults=Faults(bad_request_every=1))


REPEATS = {
    "self_ask": ("Follow up: Who is she?", {"repeated": 3, "unparsed": 1}, 5),
    "react": (" I search.\nAction: Search[her]", {"repeated": 4, "unparsed": 1}, 6),
    "ircot": ("She is a director.", {"repeated": 1, "unparsed": 1}, 3),
    "re_thinking": (QUESTION.text, {"repeated": 1}, 4),
    # Twice the question again: what the first of two queries was, which is not new the second time.
    "migres": (json.dumps({"useful_information": [], "answer": "unanswerable", "queries": [QUESTION.text]}), {"repeated": 2}, 9),
}


@pytest.mark.parametrize("method", REPEATS)
def test_a_query_repeated_for_ever_ends_and_is_counted(method, labels):
    says, faults, calls = REPEATS[method]
    prediction, server = ask(method, lambda prompt: says, labels)
    assert (count_faults([prediction]), server.requests) == (faults, calls)
    assert prediction.answer in ("unknown", says)


CITES = {
    "alce": ("She was born in Lyon [7]. The answer is Lyon [7].", "Lyon"),
    "alce rerank": ("She was born in Lyon [7]. The answer is Lyon [7].", "Lyon"),
    "re_thinking": ("Knowledge 7: remove, because it is wrong.", "Knowledge 7: remove, because it is wrong."),
    "migres": (json.dumps({"useful_information": [{"info": "Lyon", "support_passages": [7, 0, -1]}], "answer": "Lyon"}), "Lyon"),
}


@pytest.mark.parametrize("method", CITES)
def test_a_passage_that_does_not_exist_is_counted_and_never_read(method, labels):
    says, answer = CITES[method]
    prediction, _ = ask(method, lambda prompt: says, labels)
    assert (prediction.answer, count_faults([prediction])) == (answer, {"uncited": 1})


# A chat model does not go on from the middle of a line, so it writes out again what the prompt has opened.
OPENED = {
    "self_ask": ("Follow up: Who is she?", "So the final answer is:", "So the final answer is: Lyon."),
    "react": ("Action: Search[her]", "Action: Finish[", "Thought: I know.\nAction: Finish[Lyon]"),
}


@pytest.mark.parametrize("method", OPENED)
def test_an_answer_that_was_opened_may_be_opened_again(method, labels):
    asks, opening, closes = OPENED[method]
    prediction, _ = ask(method, lambda prompt: closes if prompt.endswith(opening) else asks, labels)
    assert prediction.answer == "Lyon"
    assert set(count_faults([prediction])) == {"repeated"}


def replug(llm) -> Prediction:
    decoder = import_module("infer.decoders.replug")
    session = Session(QUESTION, llm, FakeRetriever(lambda query: PASSAGES), passages_per_query=2, max_new_tokens=3)
    return asyncio.run(decoder.decode(QUESTION, session, decoder.Options()))


@pytest.mark.parametrize(
    ("says", "answer", "reason"),
    [("", "unknown", "empty"), ("I'm sorry, I can't", "unknown", "refused"), ("one two three four", "one two three", "truncated")],
)
def test_replug_counts_the_faults_of_every_passages_answer(says, answer, reason):
    prediction = replug(FakeLLM(lambda prompt: says))
    assert (prediction.answer, count_faults([prediction])) == (answer, {reason: 2})


def test_replug_leaves_out_a_passage_without_an_answer():
    prediction = replug(FakeLLM(lambda prompt: "Lyon" if "Torvel was" in prompt else ""))
    assert (prediction.answer, list(prediction.trace[-1].probabilities)) == ("Lyon", ["Lyon"])


def test_replug_counts_what_a_model_on_this_machine_did_not_finish(tiny_model, control_tokenizer):
    prediction = replug(HuggingFaceLLM(tiny_model, control_tokenizer))
    assert count_faults([prediction]) == {"truncated": 2}
    assert prediction.answer


def test_metrics_count_the_faults_of_a_run_by_reason(tmp_path, capsys):
    write_records(tmp_path / "questions.jsonl", [QUESTION, QUESTION.model_copy(update={"id": "other", "text": "Who directed Dune?"})])
    write_records(tmp_path / "passages.jsonl", PASSAGES)
    with serving(lambda prompt: PROSE, faults=Faults(refuse_every=3)) as server:
        recipe = {
            "decoder": "self_criticism",
            "questions": [str(tmp_path / "questions.jsonl")],
            "output_dir": str(tmp_path / "run"),
            "endpoint": {"base_url": server.base_url, "model": "scripted"},
            "retriever": {"passages": str(tmp_path / "passages.jsonl")},
            "questions_in_flight": 1,
        }
        (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
        assert main([str(tmp_path / "recipe.yaml")]) == 0
    results = json.loads((tmp_path / "run" / "metrics.json").read_text())["results"]["self_criticism"]
    # Each question's third call is refused, and leaves the first answer, which states none.
    assert results["faults"] == {"refused": 2, "unparsed": 2}
    assert results["faults"] == count_faults(read_records(tmp_path / "run" / PREDICTIONS_FILE, Prediction))
    assert results["knowledge_unit"] == "words"
    assert "refused 2, unparsed 2" in " ".join(capsys.readouterr().out.split())
