"""Which numbers a processor computes with."""

import logging

import pytest

from refinery.llms.weights.device import computes_bfloat16, inference_dtype, warn_of_slow_bfloat16


@pytest.mark.parametrize(
    ("capabilities", "computes"),
    [
        ({"avx512_bf16": True, "amx_bf16": False}, True),
        ({"avx512_bf16": False, "amx_bf16": True}, True),
        ({"avx512_bf16": False, "amx_bf16": False, "avx2": True}, False),
        ({"cpu_name": "unknown"}, True),
    ],
)
def test_a_processor_computes_bfloat16_by_any_of_its_instructions(capabilities, computes):
    assert computes_bfloat16(capabilities) is computes


@pytest.mark.parametrize(("dtype", "device"), [("float32", "cpu"), ("bfloat16", "cuda:0")])
def test_other_numbers_and_other_devices_are_not_warned_of(caplog, dtype, device):
    warn_of_slow_bfloat16(dtype, device, key="dtype")
    assert not caplog.records


@pytest.mark.skipif(computes_bfloat16(), reason="this processor has instructions for bfloat16")
def test_bfloat16_in_software_is_one_line_that_names_the_key(caplog):
    with caplog.at_level(logging.WARNING):
        warn_of_slow_bfloat16("bfloat16", "cpu", key="llm.dtype")
    assert "Set llm.dtype: float32" in caplog.text


def test_auto_is_the_stored_type_wherever_that_is_fast():
    assert inference_dtype("auto", "cuda:0") == "auto"
    assert inference_dtype("bfloat16", "cpu") == "bfloat16"
    assert inference_dtype("auto", "cpu") == ("auto" if computes_bfloat16() else "float32")
