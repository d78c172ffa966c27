"""What a decoder does is streamed as reasoning while it works, and what it read can be listed under the answer."""

import asyncio
import threading

import pytest
from helpers.chat_client import ask, slow_decoder

from infer.confidence.abstain import Calibration
from infer.confidence.estimate import Estimate
from infer.pipeline import Pipeline
from infer.serving.reply import step_line
from infer.serving.sources import without_sources
from refinery.contract.records import Passage
from refinery.contract.trace import ScoredPassage, TraceStep
from refinery.retrievers.bm25 import Bm25

HOSTILE = Passage(
    id="![x](http://evil.example/?q)", title="</details><img src=x> **bold** `code`\n[a](javascript:b)\x1b[2J", text="Cedar Falls"
)


def reasoning(chunk):
    return (chunk.choices[0].delta.model_extra or {}).get("reasoning_content") if chunk.choices else None


def test_each_step_is_told_before_the_answer(pipeline, served):
    chunks = list(ask(served(pipeline), stream=True))
    told = [reasoning(chunk) for chunk in chunks if reasoning(chunk)]
    assert told == [
        '- Searched for "Who made Cedar Falls?": Cedar Falls\n',
        "- Answer with passages: Cleo Marn\n",
    ]
    assert [bool(reasoning(chunk)) for chunk in chunks] == [False, True, True, False, False]


def test_a_step_arrives_while_the_decoder_works_on(pipeline, served):
    seen = threading.Event()

    async def search_and_wait(question, session):
        await session.search(question.text)
        assert await asyncio.to_thread(seen.wait, 20), "the step did not arrive before the answer"

    pipeline.decoder = slow_decoder(search_and_wait)
    for chunk in ask(served(pipeline), stream=True):
        if reasoning(chunk):
            seen.set()
    assert seen.is_set()


def test_a_reply_that_is_not_streamed_and_a_server_without_steps_tell_none(pipeline, served):
    assert "reasoning_content" not in ask(served(pipeline)).choices[0].message.model_extra
    assert not any(reasoning(chunk) for chunk in ask(served(pipeline, steps=False), stream=True))


@pytest.mark.parametrize(
    ("step", "line"),
    [
        (TraceStep(name="condense", depth=0, question="And he?", text="Who?\n"), "- Reworded the question as: Who?\n"),
        (TraceStep(name="rewrite", depth=0, question="Who?", text="director"), "- Rewrote the query as: director\n"),
        (
            TraceStep(name="decompose", depth=0, question="q", text="1. Who?\n2. Where?"),
            "- Broke the question down into: 1. Who?; 2. Where?\n",
        ),
        (
            TraceStep(name="relevance", depth=1, question="Who?", text="Elm", probabilities={" relevant": 0.934, " irrelevant": 0.066}),
            "  - Judged the passage (Who?): Elm, relevant (93%)\n",
        ),
        (TraceStep(name="retrieve", depth=2, question="Who?", passages=[]), '    - Searched for "Who?": found nothing\n'),
        (TraceStep(name="needs_retrieval", depth=0, question="q"), "- Needs retrieval\n"),
        (TraceStep(name="answer", depth=0, question="q", text="x" * 999), f"- Answer: {'x' * 300}…\n"),
        (TraceStep(name="answer", depth=0, question="q", text="3", reasoning="1 + 2"), "- Answer: 3, thought: 1 + 2\n"),
    ],
)
def test_a_step_is_one_line(step, line):
    assert step_line(step) == line


def test_only_five_titles_are_named():
    found = [ScoredPassage(id=f"p{number}", text="", retrieval_score=1.0) for number in range(7)]
    assert (
        step_line(TraceStep(name="retrieve", depth=0, question="q", passages=found))
        == '- Searched for "q": p0; p1; p2; p3; p4 and 2 more\n'
    )


def test_sources_are_listed_under_the_answer_if_wanted(pipeline, served):
    both, client = "Cedar Falls, Cedar Falls or Amber Road?", served(pipeline, sources=True)
    listed = ask(client, both).choices[0].message.content
    assert listed == "Cleo Marn\n\n**Sources**\n\n1. Cedar Falls\n2. Amber Road"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in ask(client, both, stream=True)) == listed
    assert ask(client, max_tokens=1).choices[0].message.content.startswith("Cleo\n\n**Sources**")  # the limit is the answer's
    assert ask(served(pipeline)).choices[0].message.content == "Cleo Marn"


def test_text_of_passages_stays_text(pipeline, served):
    pipeline.retriever = Bm25([HOSTILE])
    pipeline.llm.script = lambda text: "Cleo Marn"
    client = served(pipeline, sources=True)
    content = ask(client).choices[0].message.content
    told = next(filter(None, map(reasoning, ask(client, stream=True))))
    for shown in (content.partition("1. ")[2], told.partition(": ")[2]):
        assert "\n" not in shown.rstrip("\n")
        assert not {"<", "\x1b"} & set(shown)
        assert "\\[a\\]" in shown
        assert "\\*\\*bold\\*\\*" in shown
    assert "\\!\\[x\\](http" in content


def test_sources_of_an_earlier_answer_are_not_read_again(pipeline, served):
    pipeline.llm.script = lambda text: "Who made Amber Road?" if text.endswith("Standalone question:") else "Ada Quist"
    client = served(pipeline, sources=True)
    first = ask(client).choices[0].message.content
    before = [{"role": "user", "content": "Who made Cedar Falls?"}, {"role": "assistant", "content": first}]
    ask(client, messages=[*before, {"role": "user", "content": "And Amber Road?"}])
    condensed = next(text for text in pipeline.llm.texts("generate") if "Standalone" in text)
    assert "Assistant: Ada Quist\nLast question: And Amber Road?" in condensed


@pytest.mark.parametrize("said", ["Elm", "**Sources**", "Elm\n\n**Sources**\n\nare listed below.", "1. Elm"])
def test_what_is_no_list_of_sources_stays(said):
    assert without_sources(said) == said


CITED = {"cited": {"not_answered": "Nobody wrote it down."}}
WRITTEN = "Cedar Falls was made by Cleo Marn [1], and not by Ada Quist [9]."


@pytest.fixture
def cited(pipeline):
    """`rag` with an answer for people, which its model writes."""
    pipeline.recipe = type(pipeline.recipe).model_validate({**pipeline.recipe.model_dump(), **CITED})
    pipeline.llm.script = lambda text: WRITTEN if "numbered passages" in text else "Cleo Marn"
    return pipeline


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_for_people_cites_passages_that_are_listed_under_it(cited, served, stream):
    reply = ask(served(cited), stream=stream)
    chunks = list(reply) if stream else []
    content = "".join(chunk.choices[0].delta.content or "" for chunk in chunks) if stream else reply.choices[0].message.content
    found = (chunks[-1] if stream else reply).refinery
    assert content == "Cedar Falls was made by Cleo Marn [1], and not by Ada Quist.\n\n**Sources**\n\n1. Cedar Falls"
    assert (found["answered"], found["citations"]) == (
        True,
        {"answered": True, "draft": "Cleo Marn", "cited": [1], "removed": 1, "by_words": False},
    )
    assert found["read"][0]["id"] == "Cedar Falls"


def test_the_answer_is_told_while_it_is_written_and_nothing_else_is(cited, served):
    chunks = list(ask(served(cited), stream=True))
    parts = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices[0].delta.content]
    assert len(parts) > 5
    assert [reasoning(chunk) for chunk in chunks if reasoning(chunk)][-1] == "- Answer with passages: Cleo Marn\n"
    assert ask(served(cited), max_tokens=2).choices[0].message.content.startswith("Cedar Falls\n\n**Sources**")
    assert [c.choices[0].delta.content for c in ask(served(cited), max_tokens=2, stream=True)][-2].startswith("Cedar Falls\n")


@pytest.mark.parametrize("draft", ["unknown", "Cleo Marn"])
def test_what_the_documents_do_not_say_is_flagged_and_has_no_sources(cited, served, draft):
    cited.llm.script = lambda text: "NOT ANSWERED" if "numbered passages" in text else draft
    reply = ask(served(cited))
    assert (reply.choices[0].message.content, reply.refinery["answered"]) == ("Nobody wrote it down.", False)


def test_an_unknown_answer_of_a_decoder_alone_is_flagged_too(pipeline, served):
    pipeline.llm.script = lambda text: "Unknow"
    reply = ask(served(pipeline, sources=True))
    assert (reply.choices[0].message.content, reply.refinery["answered"]) == ("Unknow", False)


def test_citations_of_an_earlier_answer_are_not_read_again(cited, served):
    client = served(cited)
    first = ask(client).choices[0].message.content
    before = [{"role": "user", "content": "Who made Cedar Falls?"}, {"role": "assistant", "content": first}]
    ask(client, messages=[*before, {"role": "user", "content": "And Amber Road?"}])
    condensed = next(text for text in cited.llm.texts("generate") if "Standalone" in text)
    assert "Assistant: Cedar Falls was made by Cleo Marn, and not by Ada Quist.\nLast question:" in condensed


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_the_decoder_is_not_sure_of_is_a_guess_beside_the_recipes_sentence(pipeline, served, tmp_path, stream):
    never = Estimate(signals=[], means=[], deviations=[], weights=[], bias=-2.0)
    made = Calibration(decoder="rag", run="r", questions_hash="h", estimate=never)
    (tmp_path / "confidence.json").write_text(made.model_dump_json(exclude_none=True))
    abstain = {"by": tmp_path / "confidence.json", "below": 0.5, "say": "That is not in the files."}
    unsure = Pipeline(type(pipeline.recipe).model_validate({**pipeline.recipe.model_dump(), "abstain": abstain}))
    unsure.llm, unsure.retriever = pipeline.llm, pipeline.retriever
    reply = ask(served(unsure), stream=stream)
    chunks = list(reply) if stream else []
    content = "".join(chunk.choices[0].delta.content or "" for chunk in chunks) if stream else reply.choices[0].message.content
    found = (chunks[-1] if stream else reply).refinery
    assert content == "That is not in the files."
    assert (found["answered"], found["abstained"], found["guess"]) == (False, True, "Cleo Marn")
    assert found["confidence"] == pytest.approx(0.119, abs=1e-3)
