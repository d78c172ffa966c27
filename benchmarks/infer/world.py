"""The inputs of the benchmark: a random Llama, a tokenizer of made-up words, questions of a fixed length, and a search function.

A random model writes random queries, so passages are drawn with the query as the seed: the engine and the reference find the same ones.
"""

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from refinery.contract.control_tokens import RQ_RAG
from refinery.contract.records import Passage, Question
from refinery.contract.tokenizer import Tokenizer
from refinery.runtime.files.fingerprint import text_fingerprint
from refinery.tasks.relevance import IRRELEVANT, RELEVANT
from refinery.tasks.self_knowledge import KNOW, UNKNOW

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

_PASSAGES_PER_QUERY = 3  # RQ-RAG Sec. 3.3


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of a random Llama, with four query heads per key head as in Llama 3, and the lengths in tokens of its inputs."""

    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    vocabulary: int
    question_words: int
    passage_words: int


def build_model(shape: Shape, tokenizer: Tokenizer, *, device: str = "cpu", dtype: str = "float32") -> "LlamaForCausalLM":
    """A random Llama. Its output head is scaled up, so that greedy choices do not depend on the last bit."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads // 4,
        max_position_embeddings=4096,
        initializer_range=0.05,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.device(device):
        torch.set_default_dtype(getattr(torch, dtype))
        model = LlamaForCausalLM(config).eval()
        torch.set_default_dtype(torch.float32)
    model.lm_head.weight.data *= 5
    return model


def build_tokenizer(vocabulary: int) -> Tokenizer:
    """A tokenizer with one token per word: RQ-RAG's control tokens, RA-ISF's labels, and made-up words, `vocabulary` tokens in all."""
    import tokenizers
    from tokenizers import models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    named = ["<s>", "</s>", "<pad>", "<unk>", *(label.strip() for label in (KNOW, UNKNOW, RELEVANT, IRRELEVANT))]
    words = [*named, *(_word(number) for number in range(vocabulary - len(named) - len(RQ_RAG)))]
    tokenizer = tokenizers.Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))  # noqa: S106
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",  # noqa: S106
        eos_token="</s>",  # noqa: S106
        pad_token="<pad>",  # noqa: S106
        unk_token="<unk>",  # noqa: S106
    )
    fast.add_special_tokens({"additional_special_tokens": [token.token for token in RQ_RAG]})
    return cast(Tokenizer, fast)


def draw_questions(number: int, shape: Shape) -> list[Question]:
    """Questions of `question_words` words each."""
    rng = random.Random(0)
    return [Question(id=f"q{i}", text=_words(rng, shape.question_words, shape)) for i in range(number)]


def find_passages(query: str, shape: Shape) -> list[Passage]:
    """Three passages that depend only on the query."""
    rng = random.Random(text_fingerprint([query]))
    return [
        Passage(id=str(i), title=_words(rng, 2, shape), text=_words(rng, shape.passage_words, shape)) for i in range(_PASSAGES_PER_QUERY)
    ]


def _word(number: int) -> str:
    return f"w{number}"


def _words(rng: random.Random, count: int, shape: Shape) -> str:
    return " ".join(_word(rng.randrange(shape.vocabulary - 100)) for _ in range(count))
