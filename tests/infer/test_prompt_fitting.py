"""Prompts that come to more than the model has room for: worked examples and several searches."""

import asyncio
import itertools
from importlib import import_module

import pytest

from infer.prompt_fitting import fit_prompt
from infer.session import Session
from refinery.contract.records import Passage, Question
from refinery.llms.fake import FakeLLM, FakeTokenizer
from refinery.prompts.render import render_prompt
from refinery.retrievers.fake import FakeRetriever

LIMIT, TO_WRITE = 1000, 40


def long_passages(query: str) -> list[Passage]:
    return [Passage(id=f"{query} {number}", title=f"film {number}", text=f"{query} {number} " + "word " * 800) for number in range(2)]


class SmallModel(FakeLLM):
    """Never ends: it searches, or asks, or thinks, as long as it is allowed to."""

    context_limit = LIMIT

    def __init__(self):
        numbers = itertools.count()
        super().__init__(lambda text: f" I need more.\nAction: Search[what {next(numbers)}]\nFollow up: who {next(numbers)}?")


@pytest.mark.parametrize("examples", ["zero", "few"])
@pytest.mark.parametrize(
    ("decoder", "options"),
    [
        ("react", {"max_reasoning_tokens": TO_WRITE}),
        ("self_ask", {"max_reasoning_tokens": TO_WRITE}),
        ("ircot", {"max_sentence_tokens": TO_WRITE, "max_reading_tokens": TO_WRITE}),
    ],
)
def test_what_several_searches_found_is_shortened_to_the_models_context(decoder, options, examples):
    found, llm = import_module(f"infer.decoders.{decoder}"), SmallModel()
    session = Session(Question(id="q", text="Who directed it?"), llm, FakeRetriever(long_passages), passages_per_query=2)
    asyncio.run(found.decode(session.question, session, found.Options(examples=examples, **options)))
    read = [len(llm.tokenizer(text)["input_ids"]) for text in llm.texts("generate")]
    assert len(read) > 2
    assert LIMIT * 0.9 < max(read) <= LIMIT - TO_WRITE
    assert "shortened" in [step.name for step in session.trace]


def test_a_prompt_that_fits_or_shows_no_passage_stays_as_it_is():
    tokenizer = FakeLLM(str).tokenizer
    short = render_prompt("answer_with_passages", question="Who?", passages=[Passage(id="a", title="Dune", text="Dune is a film.")])
    assert fit_prompt(short, 1000, tokenizer) is short
    bare = render_prompt("answer_direct", question="Who?")
    assert fit_prompt(bare, 1, tokenizer) is bare


def test_the_passages_of_a_prompt_lose_their_text_before_anything_else():
    tokenizer = FakeLLM(str).tokenizer
    steps = [("Thought: what?\nAction: Search[Dune]", long_passages("Dune")[:1]), ("Thought: who?\nAction: Search[Lynch]", [])]
    prompt = render_prompt("react", question="Who?", steps=steps, must_answer=False)
    fitted = fit_prompt(prompt, 200, tokenizer)
    assert 190 <= len(tokenizer(fitted)["input_ids"]) <= 200
    assert [part for part in fitted.split() if part != "word"] == [part for part in prompt.split() if part != "word"]
    assert "word" not in fit_prompt(prompt, 1, tokenizer)


def test_a_text_that_takes_more_tokens_when_it_is_cut_is_shortened_all_the_same():
    class Contrary(FakeTokenizer):
        def decode(self, token_ids, **options):
            return super().decode(token_ids) + " more more"

    prompt = render_prompt("answer_with_passages", question="Who?", passages=long_passages("Dune"))
    tokenizer = Contrary()
    assert len(tokenizer(fit_prompt(prompt, 100, tokenizer))["input_ids"]) <= 100
