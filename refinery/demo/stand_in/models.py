"""Tiny substitutes for a paper's encoder, reranker, entailment model and Self-RAG. They load and compute like the real ones."""

import re
import string
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_SIZE: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
_TEXT = "premise hypothesis the a film book city country person was is in of by born directed wrote released capital which who when where"


def write_tiny_models(folder: Path) -> None:
    """Write `encoder`, `cross_encoder`, `nli` and `self_rag` into the folder, unless they exist."""
    if not (folder / "self_rag").exists():
        _write_encoder(folder / "encoder")
        _write_cross_encoder(folder / "encoder", folder / "cross_encoder")
        _write_nli(folder / "nli")
        _write_self_rag(folder / "self_rag")


def _write_encoder(folder: Path) -> None:
    import torch
    from transformers import BertConfig, BertModel, BertTokenizer

    letters = string.ascii_lowercase + string.digits
    pieces = dict.fromkeys(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *_words(), *letters, *(f"##{letter}" for letter in letters)])
    tokenizer = BertTokenizer(vocab={piece: number for number, piece in enumerate(pieces)})
    torch.manual_seed(0)
    model = BertModel(BertConfig(vocab_size=len(tokenizer), max_position_embeddings=512, initializer_range=0.2, **_SIZE))
    model.save_pretrained(folder)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")  # as Contriever is published
    tokenizer.save_pretrained(folder)


def _write_cross_encoder(encoder: Path, folder: Path) -> None:
    from refinery.llms.weights.checkpoint import load_base

    for part in load_base(str(encoder), family="classifier", labels=["score"]):
        part.save_pretrained(folder)


def _write_nli(folder: Path) -> None:
    import torch
    from transformers import T5Config, T5ForConditionalGeneration, T5Tokenizer

    pieces = [f"▁{word}" for word in _words()] + ["▁", *string.ascii_letters, *string.digits, *string.punctuation]
    special: Iterable[Any] = ((token, 0.0) for token in ("<pad>", "</s>", "<unk>"))
    tokenizer = T5Tokenizer(vocab=[*special, *((piece, -3.0 - number / 100) for number, piece in enumerate(pieces))], extra_ids=4)
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 1, "num_heads": 2}
    ids: dict[str, Any] = {"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1}
    T5ForConditionalGeneration(T5Config(vocab_size=len(tokenizer), **sizes, **ids)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _write_self_rag(folder: Path) -> None:
    """Write the demo's causal model with Self-RAG's tokens, as .bin like the published one."""
    import torch

    from refinery.contract.control_tokens import SELF_RAG
    from refinery.llms.weights.checkpoint import load_base
    from refinery.runtime.recipes.shipped_files import DEMO_CHECKPOINT, shipped

    model, tokenizer = load_base(str(shipped(DEMO_CHECKPOINT)), dtype="float32")
    tokens: dict[str, Any] = {"additional_special_tokens": [token.token for token in SELF_RAG]}
    tokenizer.add_special_tokens(tokens)
    model.resize_token_embeddings(len(tokenizer))
    for part in (model.config, tokenizer):
        part.save_pretrained(folder)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")


def _words() -> list[str]:
    return sorted(set(re.findall(r"\w+", _TEXT)))
