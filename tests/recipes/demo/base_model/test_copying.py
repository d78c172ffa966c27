import random

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from recipes.demo.base_model.copying import order_rows, write_copying_heads


def new_model(vocab_size=500):
    torch.manual_seed(0)
    shape = {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 4, "num_attention_heads": 4}
    rope = {"rope_type": "default", "rope_theta": 1e8}
    return LlamaForCausalLM(LlamaConfig(vocab_size=vocab_size, tie_word_embeddings=True, rope_parameters=rope, **shape))


@torch.no_grad()
def share_copied(model):
    """Share of the tokens predicted in the second half of sequences that say the same twice."""
    rng, right, count = random.Random(0), 0, 0
    for _ in range(20):
        half = rng.sample(range(500), 32)
        predicted = model(torch.tensor([half + half])).logits[0, len(half) : -1].argmax(-1).tolist()
        right += sum(a == b for a, b in zip(predicted, half[1:], strict=True))
        count += len(half) - 1
    return right / count


def test_a_model_that_was_never_trained_copies():
    model = new_model()
    assert share_copied(model) < 0.05
    write_copying_heads(model, seed=0)
    assert share_copied(model) > 0.2


def test_ordered_rows_rise_along_one_dimension():
    model = new_model()
    write_copying_heads(model, seed=0)
    order_rows(model, [7, 3, 9])
    first, second, third = model.get_input_embeddings().weight[[7, 3, 9], 1].tolist()
    assert first < second < third
