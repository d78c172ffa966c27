"""Norms that PyTorch computes in one kernel, while an engine has the model."""

import pytest
import torch
from helpers.tiny_llama import tiny_llama
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextRMSNormGated

from refinery.llms.engine.huggingface import HuggingFaceLLM
from refinery.llms.engine.norms import fuse_norms, unfuse_norms


@pytest.mark.parametrize(("norm", "is_fused"), [(LlamaRMSNorm(32), True), (Gemma3RMSNorm(32), False), (Qwen3NextRMSNormGated(32), False)])
def test_only_a_norm_that_computes_the_same_is_fused(norm, is_fused):
    rows = torch.randn(4, 32, generator=torch.Generator().manual_seed(0))
    given = (rows, rows) if isinstance(norm, Qwen3NextRMSNormGated) else (rows,)
    expected = norm(*given)
    fused = fuse_norms(torch.nn.Sequential(norm))
    assert fused == ([norm] if is_fused else [])
    torch.testing.assert_close(norm(*given), expected)
    unfuse_norms(fused)
    assert "forward" not in vars(norm)


def test_the_engine_gives_norms_back(control_tokenizer):
    model = tiny_llama(control_tokenizer)
    norms = [module for module in model.modules() if isinstance(module, LlamaRMSNorm)]
    llm = HuggingFaceLLM(model, control_tokenizer)
    assert all("forward" in vars(norm) for norm in norms)
    llm.release()
    assert not any("forward" in vars(norm) for norm in norms)
