"""The passages that the answer was written from, which every decoder says: not all that were retrieved or judged."""

import asyncio

import pytest
from helpers import baselines, migres_script, ra_isf_script, self_rag_forward

from infer.decoders import re_thinking, rq_rag, self_rag
from infer.session import Session
from refinery.contract.records import KnowledgeLabel, Passage, Question, write_records
from refinery.llms.engine.huggingface import HuggingFaceLLM
from refinery.llms.fake import FakeLLM
from refinery.retrievers.fake import FakeRetriever

FILM, PERSON, QUERY = baselines.FILM, baselines.PERSON, baselines.QUERY
SAND = Passage(id="sand", title="Dunes", text="Hills of sand.")
CITED = "Maria Torvel was born in Lyon [1]. The answer is Lyon."


def ra_isf(**options):
    model = {"relevant": {ra_isf_script.WHOLE: ["Maria Torvel"]}} | options.pop("model", {})
    return ra_isf_script.solve(ra_isf_script.Model(**model), **options)[0]


def in_parts(relevant):
    parts = {ra_isf_script.WHOLE: [ra_isf_script.DUNE, ra_isf_script.LYON]}
    return {"relevant": relevant, "decompositions": parts}


def rethought(**options):
    replies = iter(["Knowledge 2: remove.", "Her place of birth is missing.", "Maria Torvel", "Lyon"])
    retriever = FakeRetriever(lambda query: [PERSON] if "Torvel" in query else [FILM, SAND])
    session = Session(Question(id="q", text=QUERY), FakeLLM(lambda text: next(replies)), retriever, passages_per_query=3)
    return asyncio.run(re_thinking.decode(session.question, session, re_thinking.Options(**options)))


def searched_by(action: str):
    """RQ-RAG, whose answer behind one kind of search is the likeliest."""

    def script(text):
        return (
            f" {text.rpartition('[S_')[2].partition('_')[0]}"
            if text.endswith("[A_Response]")
            else " Torvel"
            if "Decomp" in text[-30:]
            else " q"
        )

    retriever = FakeRetriever(lambda query: [PERSON] if query == "Torvel" else [FILM])
    llm = FakeLLM(script, scores={f"[S_{action}_Query]": 0.0})
    session = Session(Question(id="q", text=QUERY), llm, retriever, passages_per_query=3, max_new_tokens=6)
    return asyncio.run(rq_rag.decode(session.question, session, rq_rag.Options(max_depth=1, selection="ppl")))


def plain(decoder, script=None, **options):
    return baselines.solve(decoder, script or baselines.RUNS[decoder][0], **options)[0]


CASES = {
    "direct": (lambda: plain("direct", ["Lyon"]), []),
    "rag": (lambda: plain("rag", ["Lyon"], found=[FILM, SAND]), [FILM, SAND]),
    "self_consistency": (lambda: plain("self_consistency", lambda text: "Lyon", samples=2), [FILM]),
    "replug": (lambda: plain("replug", lambda text: "Lyon", found=[FILM, SAND]), [FILM, SAND]),
    "alce": (lambda: plain("alce", [CITED], found=[SAND, PERSON]), [SAND, PERSON]),
    "alce without what is irrelevant": (
        lambda: plain("alce", [CITED], found=[SAND, PERSON], strategy="vanilla_s", relevance_threshold=0.1),
        [PERSON],
    ),
    "alce whose samples are judged": (
        lambda: plain(
            "alce", lambda text: '{"entails": true}' if "premise" in text else CITED, found=[PERSON], strategy="rerank", entailment="llm"
        ),
        [PERSON],
    ),
    "chain_of_thought": (lambda: plain("chain_of_thought"), [FILM]),
    "chain_of_note": (lambda: plain("chain_of_note"), [FILM]),
    "least_to_most": (lambda: plain("least_to_most"), [FILM, PERSON]),
    "self_ask": (lambda: plain("self_ask"), [FILM, PERSON]),
    "ircot": (lambda: plain("ircot"), [FILM, PERSON]),
    "iter_retgen": (lambda: plain("iter_retgen"), [PERSON]),
    "iter_retgen that reads all": (lambda: plain("iter_retgen", reads="all"), [FILM, PERSON]),
    "react": (lambda: plain("react"), [FILM, PERSON]),
    "plan_and_solve": (lambda: plain("plan_and_solve"), [FILM]),
    "self_criticism": (lambda: plain("self_criticism"), [FILM]),
    "re_thinking": (rethought, [FILM, SAND, PERSON]),
    "re_thinking that filters": (lambda: rethought(relevance="filter"), [FILM, PERSON]),
    "rq_rag that rewrites": (lambda: searched_by("Rewritten"), [FILM]),
    "rq_rag that decomposes": (lambda: searched_by("Decomposed"), [PERSON]),
    "ra_isf of what is relevant": (ra_isf, [PERSON]),
    "ra_isf of everything": (lambda: ra_isf(answer_from="all"), ra_isf_script.PASSAGES),
    "ra_isf that knows": (lambda: ra_isf(model={"known": [ra_isf_script.WHOLE]}), []),
    "ra_isf that finds nothing": (lambda: ra_isf(model={"relevant": {}}, max_depth=0, unresolved="unknow"), []),
    "ra_isf in parts": (
        lambda: ra_isf(model=in_parts({ra_isf_script.DUNE: ["Dune"], ra_isf_script.LYON: ["Maria Torvel", "Dune"]})),
        [FILM, PERSON],
    ),
    "migres": (lambda: migres_script.solve()[0], [migres_script.FILM, migres_script.PERSON]),
    "migres by itself": (lambda: migres_script.solve(found={migres_script.WHOLE: []}, max_iterations=1)[0], []),
}


@pytest.mark.parametrize("case", CASES)
def test_the_answer_says_what_it_was_written_from(case):
    decode, expected = CASES[case]
    read = decode().read
    assert [(passage.id, passage.title) for passage in read] == [(passage.id, passage.title) for passage in expected]


@pytest.mark.parametrize(("label", "read"), [("know", []), ("unknow", [FILM])])
def test_skr_reads_what_it_retrieved(tmp_path, label, read):
    write_records(tmp_path / "labels.jsonl", [KnowledgeLabel(question_id="1", question=QUERY, label=label)])
    assert plain("skr", ["Lyon"], labels=tmp_path / "labels.jsonl", neighbours=1).read == read


@pytest.mark.parametrize("form", ["short", "long"])
def test_self_rag_reads_the_passages_of_its_best_segments(tiny_tokenizer, form):
    tokenizer = self_rag_forward.self_rag_tokenizer(tiny_tokenizer)
    model = self_rag_forward.leaning_model(tokenizer, self_rag_forward.CRITIQUES, 1.6, seed=3)
    retriever = FakeRetriever(lambda query: [FILM, SAND, PERSON])
    question = self_rag_forward.QUESTION
    session = Session(question, HuggingFaceLLM(model, tokenizer), retriever, passages_per_query=3, max_new_tokens=12)
    options = self_rag.Options(form=form, mode="always_retrieve", max_segments=1, citations=form == "long")
    prediction = asyncio.run(self_rag.decode(question, session, options))
    (read,) = prediction.read
    number = [FILM, SAND, PERSON].index(read) + 1
    answers = [step.text for step in prediction.trace if step.name == "answer"]
    assert prediction.answer.startswith(answers[number - 1].rstrip("."))
    assert form == "short" or prediction.answer.endswith(f"[{number}].")


def test_what_a_decoder_of_somebody_elses_asked_last_is_what_it_read():
    session = Session(Question(id="q", text=QUERY), FakeLLM(lambda text: "x"), FakeRetriever(lambda query: [FILM]), passages_per_query=1)
    assert session.prediction("made up").read is None
