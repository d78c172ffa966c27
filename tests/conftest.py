"""What the tests share: an offline, single-threaded environment, the demo's tokenizer and a tiny random model."""

import os

# Read by the libraries when they are imported, so set before anything else is.
os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import contextlib
import socket

import pytest
from hypothesis import settings

from refinery.control_tokens import RQ_RAG

settings.register_profile("refinery", max_examples=40, deadline=None, derandomize=True)
settings.load_profile("refinery")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, and show as skipped, what needs a GPU or the internet where there is none."""
    needs = {"gpu": (_has_gpu, "needs a CUDA device"), "network": (_reaches_the_hub, "needs the internet")}
    for marker, (is_there, reason) in needs.items():
        marked = [item for item in items if item.get_closest_marker(marker)]
        if marked and not is_there():
            for item in marked:
                item.add_marker(pytest.mark.skip(reason=reason))


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _reaches_the_hub() -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("huggingface.co", 443), timeout=3):
        return True
    return False


@pytest.fixture(scope="session")
def tiny_tokenizer():
    """The demo's tokenizer as the base checkpoint has it: no control tokens."""
    from refinery.demo.tokenizer import build_tokenizer

    return build_tokenizer(1856)


@pytest.fixture(scope="session")
def control_tokenizer(tiny_tokenizer):
    """The demo's tokenizer with RQ-RAG's control tokens added."""
    from copy import deepcopy

    tokenizer = deepcopy(tiny_tokenizer)
    tokenizer.add_special_tokens({"additional_special_tokens": [token.token for token in RQ_RAG]})
    return tokenizer


@pytest.fixture
def tiny_model(control_tokenizer):
    """A random Llama, peaked enough that its greedy choices do not hang on the last bit."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(control_tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=512,
        initializer_range=0.4,
        bos_token_id=control_tokenizer.bos_token_id,
        eos_token_id=control_tokenizer.eos_token_id,
        pad_token_id=control_tokenizer.pad_token_id,
    )
    return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="session")
def tiny_bases(tiny_tokenizer, tmp_path_factory):
    """Folders of random base checkpoints without control tokens: `tied`, and `untied` as Llama 2 is."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    folders = {}
    for name in ("tied", "untied"):
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=len(tiny_tokenizer),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=512,
            initializer_range=0.2,
            tie_word_embeddings=name == "tied",
            bos_token_id=tiny_tokenizer.bos_token_id,
            eos_token_id=tiny_tokenizer.eos_token_id,
            pad_token_id=tiny_tokenizer.pad_token_id,
        )
        folders[name] = tmp_path_factory.mktemp("base") / name
        LlamaForCausalLM(config).save_pretrained(folders[name])
        tiny_tokenizer.save_pretrained(folders[name])
    return folders
