"""The encoder engine: the pair it reads, the shares it gives, and what it refuses."""

import asyncio

import pytest
import torch

from refinery.contract.records import Passage
from refinery.errors import LLMError
from refinery.llms.build import ModelConfig, build_llm
from refinery.llms.engine.classifier import ClassifierLLM, encode_pair
from refinery.llms.weights.checkpoint import load_base
from refinery.tasks.decomposition import decomposition_prompt
from refinery.tasks.relevance import IRRELEVANT, RELEVANT, relevance_prompt
from refinery.tasks.self_knowledge import KNOW, UNKNOW, knowledge_prompt

FILM = Passage(id="1", title="Dune", text="Dune is a film directed by Maria Dune.")
PROMPT = relevance_prompt("Who directed Dune?", FILM)


@pytest.fixture(scope="module")
def loaded(tiny_encoder):
    torch.manual_seed(0)
    model, tokenizer = load_base(str(tiny_encoder), family="classifier", labels=("irrelevant", "relevant"))
    tokenizer.model_max_length = 40
    return model, tokenizer


@pytest.fixture
def llm(loaded):
    return ClassifierLLM(*loaded)


def choose(llm, prompt, labels=(RELEVANT, IRRELEVANT)):
    return asyncio.run(llm.context(prompt).label_probs(labels))


def test_the_shares_are_the_models_softmax(llm, loaded):
    model, tokenizer = loaded
    with torch.inference_mode():
        logits = model.eval()(**tokenizer("Who directed Dune?", f"{FILM.title}\n{FILM.text}", return_tensors="pt")).logits[0]
    probs = choose(llm, PROMPT)
    assert [probs[IRRELEVANT], probs[RELEVANT]] == pytest.approx(logits.softmax(-1).tolist(), abs=1e-6)


def test_a_batch_gives_what_its_rows_give_alone(llm):
    prompts = [PROMPT, relevance_prompt("When was the director of Golden Harbor born?", FILM), relevance_prompt("Who?", FILM)]

    async def all_at_once():
        return await asyncio.gather(*(llm.context(prompt).label_probs((RELEVANT, IRRELEVANT)) for prompt in prompts))

    for prompt, probs in zip(prompts, asyncio.run(all_at_once()), strict=True):
        assert probs == pytest.approx(choose(llm, prompt), abs=1e-6)


def test_a_long_passage_loses_its_end_and_is_counted(llm, loaded):
    _, tokenizer = loaded
    long = FILM.model_copy(update={"text": FILM.text + " the quick brown fox" * 30})
    assert choose(llm, relevance_prompt("Who directed Dune?", long)) != choose(llm, PROMPT)
    assert llm.shortened == 1
    read = encode_pair("Who directed Dune?", f"{long.title}\n{long.text}", tokenizer, max_length=40)["input_ids"]
    assert len(read) == 40
    assert tokenizer.decode(read).startswith("[CLS] who directed dune? [SEP] dune dune is a film directed by maria dune. the quick")
    assert read[-1] == tokenizer.sep_token_id


def test_a_question_that_is_too_long_by_itself_is_cut_after_the_passage(loaded):
    _, tokenizer = loaded
    read = encode_pair("Who? " * 60, FILM.text, tokenizer, max_length=40)["input_ids"]
    assert (len(read), read[-1]) == (40, tokenizer.sep_token_id)


def test_markers_in_outside_text_stay_text(loaded):
    _, tokenizer = loaded
    read = encode_pair("Who [SEP] is [CLS] it?", "a [SEP] [PAD] b", tokenizer)["input_ids"]
    assert [read.count(i) for i in (tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id)] == [1, 2, 0]


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda llm: llm.context(PROMPT).label_probs((KNOW, UNKNOW)), "it cannot read know or unknow"),
        (lambda llm: llm.context(decomposition_prompt("Who?")).label_probs((RELEVANT, IRRELEVANT)), "it cannot read this prompt"),
        (lambda llm: llm.context(PROMPT).generate(max_new_tokens=4), "it cannot write text"),
        (lambda llm: llm.context(PROMPT).score([]), "it cannot score text"),
    ],
)
def test_what_an_encoder_cannot_do_is_one_line(llm, ask, message):
    with pytest.raises(LLMError, match=message) as caught:
        asyncio.run(ask(llm))
    assert len(str(caught.value).splitlines()) == 1


def test_a_knowledge_judge_reads_the_question_alone(tiny_encoder, tmp_path):
    model, tokenizer = load_base(str(tiny_encoder), family="classifier", labels=("unknow", "know"))
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    llm = build_llm(ModelConfig(base=str(tmp_path)))
    assert isinstance(llm, ClassifierLLM)
    context = llm.context(knowledge_prompt("Who directed Dune?"))
    assert tokenizer.decode(context.token_ids) == "[CLS] who directed dune? [SEP]"
    assert sum(choose(llm, knowledge_prompt("Who?"), (KNOW, UNKNOW)).values()) == pytest.approx(1.0)
