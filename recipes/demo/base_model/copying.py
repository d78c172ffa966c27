"""Initial weights that can already copy, so that the tiny base checkpoint does not have to learn it.

A Transformer learns to copy from its context by growing two heads that work together (Olsson et al. 2022, "In-context Learning and
Induction Heads"): one notes at each position which token came before, the next looks for positions whose note is the current token. From
random weights this takes hours on a CPU; here both are written into the first two layers. Everything is trained afterwards.
"""

import math

import torch
from transformers import LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

EMBEDDING_STD = 0.05
# Share of the embedding's length that all tokens have in common. Llama has no biases, so a purely positional head needs it.
_COMMON = 0.5
_SHARPNESS = 8.0  # of the heads that look back one and two places; about 94 % of their attention lands there
_MATCH_GAIN = 2.0
_COPY_GAIN = 6.0  # must outweigh the token's own embedding, which the tied head would otherwise predict
_OTHER_GAIN = 0.3
_SAME_TOKEN_GAIN = 1.4
_ORDER_GAIN = 4.0
# Dimensions that rotate faster than this (radians per token) distinguish positions; slower ones carry content over a whole prompt.
_FAST = 0.005


@torch.no_grad()
def write_copying_heads(model: LlamaForCausalLM, *, seed: int) -> None:
    """Overwrite embeddings and attention of a new model with at least 3 layers of 4 heads."""
    random = torch.Generator().manual_seed(seed)
    config = model.config
    width, head_dim = config.hidden_size, config.hidden_size // config.num_attention_heads
    embedding = model.model.embed_tokens.weight
    embedding.normal_(0, EMBEDDING_STD, generator=random)
    embedding[:, 0] = EMBEDDING_STD * math.sqrt(width) * _COMMON

    def subspace() -> torch.Tensor:
        """(head_dim, width), orthonormal rows that ignore the common dimension."""
        rows = torch.zeros(head_dim, width)
        rows[:, 1:] = torch.linalg.qr(torch.randn(width - 1, head_dim, generator=random))[0].T
        return rows

    turn = model.model.rotary_emb.inv_freq  # (head_dim / 2,), radians a token
    slow = (torch.cat([turn, turn]) <= _FAST).float()[:, None]
    token = subspace()
    notes = [subspace(), subspace()]
    for back, note in enumerate(notes, 1):
        head = _Head(model, layer=0, head=back - 1)
        _look_back(head, back, turn, common=math.sqrt(width) * _COMMON / math.sqrt(1 + _COMMON**2))
        head.values[:], head.outputs[:] = token, note.T * EMBEDDING_STD
    for layer in (1, 2):
        for number in range(config.num_attention_heads):
            head, content = _Head(model, layer, number), subspace()
            induction = layer == 1 and number < len(notes)
            if induction:  # the current token, or the one before it, against the notes one or two positions after it
                head.queries[:] = (token if number == 0 else notes[0]) * slow * _MATCH_GAIN
                head.keys[:] = notes[number] * slow * _MATCH_GAIN
            else:  # the same token elsewhere
                same = subspace() * slow * _SAME_TOKEN_GAIN
                head.queries[:], head.keys[:] = same, same
            head.values[:] = content
            head.outputs[:] = content.T * EMBEDDING_STD * (_COPY_GAIN if induction else _OTHER_GAIN)


@torch.no_grad()
def order_rows(model: LlamaForCausalLM, tokens: list[int]) -> None:
    """Start the embeddings of `tokens` (years) in their order along one dimension, so that comparing them can be learned."""
    weight = model.model.embed_tokens.weight
    weight[tokens, 1] = torch.linspace(-1, 1, len(tokens)) * EMBEDDING_STD * _ORDER_GAIN


class _Head:
    """Views of one head's weights: queries, keys and values (head_dim, width), outputs (width, head_dim)."""

    def __init__(self, model: LlamaForCausalLM, layer: int, head: int) -> None:
        decoder_layer = model.model.layers[layer]
        assert isinstance(decoder_layer, LlamaDecoderLayer)
        attention = decoder_layer.self_attn
        rows = slice(head * attention.head_dim, (head + 1) * attention.head_dim)
        self.queries, self.keys = attention.q_proj.weight[rows], attention.k_proj.weight[rows]
        self.values, self.outputs = attention.v_proj.weight[rows], attention.o_proj.weight[:, rows]


def _look_back(head: _Head, back: int, turn: torch.Tensor, *, common: float) -> None:
    """Attend `back` positions back whatever the tokens: queries are keys rotated by that distance, in the fast dimensions."""
    head.queries.zero_()
    head.keys.zero_()
    half = len(turn)
    for i in range(half):
        if turn[i] > _FAST:
            angle = -turn[i].item() * back
            head.keys[i, 0] = _SHARPNESS / common
            head.queries[i, 0] = _SHARPNESS / common * math.cos(angle)
            head.queries[i + half, 0] = _SHARPNESS / common * math.sin(angle)
