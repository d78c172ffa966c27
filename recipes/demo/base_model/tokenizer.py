"""The tiny base checkpoint's tokenizer: byte-level BPE whose merges cover the world's names, years and phrasings."""

import random
from collections.abc import Iterator
from dataclasses import fields
from typing import cast

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from refinery.contract.tokenizer import Tokenizer
from refinery.demo.world import names
from refinery.demo.world.entities import NamePools, common_world
from refinery.demo.world.questions import QUESTION_TYPES, draw_questions
from refinery.prompts.files import SHIPPED
from refinery.prompts.render import render_prompt
from refinery.prompts.variables import variable, variables

_PROMPTS = (
    "answer_direct",
    "answer_from_sub_answers",
    "answer_with_passages",
    "decomposition",
    "react",
    "relevance",
    "rq_rag_ambiguous",
    "rq_rag_chat",
    "rq_rag_multi_hop",
    "rq_rag_multiple_choice",
    "rq_rag_short_answer",
    "self_knowledge",
)
SPECIAL_TOKENS = ("<s>", "</s>", "<pad>")


def build_tokenizer(vocab_size: int) -> Tokenizer:
    """Train the tokenizer; every word of a name and every year is one token after a space, and any text can be encoded."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=list(SPECIAL_TOKENS), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(_corpus(), trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>")  # noqa: S106
    return cast(Tokenizer, fast)


def _corpus() -> Iterator[str]:
    words = [word for pool in fields(NamePools) for word in getattr(NamePools(), pool.name)]
    words += [str(year) for year in names.YEARS]
    for word in words:
        yield from [f" {word}"] * 200
    world = common_world()
    for passage in world.passages():
        yield f"Title: {passage.title}\nText: {passage.text}\n"
    for question in draw_questions(world, random.Random(0), dict.fromkeys(QUESTION_TYPES, 400)):
        yield f"Question: {question.text}\n"
        yield from (f"Sub-question: {sub.text}\nSub-answer:" for sub in question.decomposition or [])
    for prompt in _PROMPTS:
        yield from [_rendered(prompt)] * 100
    yield from ["<|system|>\n<|user|>\n<|assistant|>\n: relevant: irrelevant: know: unknow\n1.\n2.\n3."] * 100


def _rendered(prompt: str) -> str:
    """The prompt as models read it, so that the tokenizer does not depend on how its template is written."""
    return render_prompt(prompt, **{name: variable(prompt, name).value for name in variables(prompt, SHIPPED)})
