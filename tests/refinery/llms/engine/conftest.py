"""The engine over a tiny random model."""

import pytest

from refinery.llms.engine.huggingface import HuggingFaceLLM


@pytest.fixture
def llm(tiny_model, control_tokenizer):
    return HuggingFaceLLM(tiny_model, control_tokenizer)
