"""Rows that begin alike, computed together: the same log-probabilities and gradients as one by one, from fewer tokens."""

from itertools import pairwise

import pytest
import torch
from helpers.tiny_llama import tiny_llama
from hypothesis import given
from hypothesis import strategies as st
from transformers import MistralConfig, MistralForCausalLM
from trl.trainer.utils import add_fused_lm_head

from train.trainers.rollout_rows import Rows
from train.trainers.shared_prefixes import PrefixForest, SharedPrefixes

TEXTS = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=8), min_size=1, max_size=6)
BREAK = 1920
# Three answers to one question, of which two search alike; then one to another question, in two texts.
PROMPT, SEARCH, FOUND = [1, 5, 6, 7], [20, 21, 22], [30, 31, 32, 33]
ROWS = [
    [*PROMPT, *SEARCH, *FOUND, 40, 41],
    [*PROMPT, *SEARCH, *FOUND, 40, 42, 43],
    [*PROMPT, 20, 25, 50, 51],
    [1, 8, 9, 60, 61, BREAK, 1, 8, 10, 62],
]


@given(TEXTS)
def test_each_prefix_is_there_once_and_each_text_is_a_walk_along_its_own(texts):
    forest = PrefixForest.of(texts)
    assert len(forest.token_ids) == len({tuple(text[:end]) for text in texts for end in range(1, len(text) + 1)})
    for text, nodes in zip(texts, forest.nodes, strict=True):
        assert [forest.token_ids[node] for node in nodes] == text
        assert [forest.parents[node] for node in nodes] == [-1, *nodes[:-1]]
        assert [forest.positions[node] for node in nodes] == list(range(len(text)))


@given(TEXTS)
def test_a_token_sees_its_own_prefix_and_nothing_else(texts):
    forest = PrefixForest.of(texts)
    mask = forest.mask(tiny_config(), torch.device("cpu"), torch.float32)[0, 0]
    for nodes in forest.nodes:
        for length, node in enumerate(nodes, 1):
            assert mask[node].nonzero()[:, 0].tolist() == sorted(nodes[:length])


def tiny_config():
    config = MistralConfig(sliding_window=None, num_hidden_layers=1)
    config._attn_implementation = "sdpa"
    return config


def windowed(attention: str):
    """A random Mistral whose tokens see the three before them only."""
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = MistralConfig(vocab_size=1856, sliding_window=4, initializer_range=0.2, attn_implementation=attention, **shape)
    return MistralForCausalLM(config)


MODELS = {
    "llama": lambda tokenizer: tiny_llama(tokenizer),
    "eager": lambda tokenizer: tiny_llama(tokenizer, attn_implementation="eager", num_key_value_heads=1),
    "window": lambda tokenizer: windowed("sdpa"),
    "eager_window": lambda tokenizer: windowed("eager"),
}


def padded(rows: list[list[int]]) -> Rows:
    """As TRL pads them: what is read on the left, what is written on the right. Every token behind another one of its text is scored."""
    ids, mask = torch.zeros(len(rows), 20, dtype=torch.long), torch.zeros(len(rows), 20, dtype=torch.long)
    scored = torch.zeros(len(rows), 20, dtype=torch.bool)
    for row, tokens in enumerate(rows):
        ids[row, 2 : 2 + len(tokens)], mask[row, 2 : 2 + len(tokens)] = torch.tensor(tokens), 1
        scored[row, 3 : 2 + len(tokens)] = torch.tensor([BREAK not in pair for pair in pairwise(tokens)])
    return Rows(ids, mask, scored)


def separately(model, rows: list[list[int]]) -> torch.Tensor:
    """The log-probability of every token of each text after its first, (rows, 20), by a plain forward pass of the text alone."""
    found = torch.zeros(len(rows), 20, dtype=torch.float64)
    for row, tokens in enumerate(rows):
        starts = [0, *(i + 1 for i, token in enumerate(tokens) if token == BREAK)]
        for start, end in zip(starts, [*(start - 1 for start in starts[1:]), len(tokens)], strict=True):
            logits = model(input_ids=torch.tensor([tokens[start:end]])).logits[0].double()
            for place in range(start + 1, end):
                found[row, 2 + place] = torch.log_softmax(logits[place - 1 - start], -1)[tokens[place]]
    return found


@pytest.mark.parametrize("name", MODELS)
def test_log_probabilities_and_gradients_are_those_of_separate_texts(tiny_tokenizer, name):
    model = MODELS[name](tiny_tokenizer).double()
    rows = padded(ROWS)
    weights = torch.rand(int(rows.scored.sum()), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    plain = separately(model, ROWS)[rows.scored]
    (plain * weights).sum().backward()
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    output, computed = SharedPrefixes(model, BREAK).scores(model, rows)
    found = output.log_probs[0]
    (found * weights).sum().backward()
    torch.testing.assert_close(found.double(), plain, rtol=0, atol=1e-5)
    for gradient, parameter in zip(expected, model.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-5, atol=1e-5)
    assert output.entropy[0].shape == found.shape
    assert (computed, sum(token != BREAK for row in ROWS for token in row)) == (24, 44)


def test_a_plain_forward_pass_of_the_model_is_as_before(tiny_tokenizer):
    model, ids = tiny_llama(tiny_tokenizer), torch.tensor([[1, 2, 3]])
    before = model(input_ids=ids).logits
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    SharedPrefixes(model, BREAK).scores(model, padded(ROWS))
    assert torch.equal(model(input_ids=ids).logits, before)
