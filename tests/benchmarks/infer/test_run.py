"""`python -m benchmarks.infer`: its keys, and that the engine equals its references. The figures themselves are in benchmarks/."""

import pytest

from benchmarks.infer import run
from benchmarks.infer.floors import distinct_tokens
from benchmarks.infer.steps import measure_steps
from benchmarks.infer.world import Shape, build_tokenizer, find_passages

TINY = Shape(hidden_size=32, intermediate_size=64, layers=1, heads=4, vocabulary=512, question_words=8, passage_words=5)


@pytest.mark.parametrize(("as_released", "graphs"), [(False, False), (True, True)])
def test_rq_rag_is_compared_path_by_path(as_released, graphs):
    figures = run.measure_rq_rag(TINY, number=2, as_released=as_released, graphs=graphs)
    assert figures["identical"]
    assert figures["max_score_difference"] <= 1e-4
    # Two questions share the system prompt, and each search costs one token more than the floor: its query's last one.
    assert 0.9 < figures["prefill_over_floor"] <= 1.1
    assert min(figures[floor] for floor in ("times_bare_forward", "times_plain_decoding")) > 0
    assert {"identical", "max_score_difference", "prefill_over_floor", "speedup"} <= figures.keys()


def test_tokens_of_a_common_beginning_count_once():
    assert distinct_tokens([(1, 2, 3), (1, 2), (1, 4, 3), (5,)]) == 6
    assert distinct_tokens([]) == 0


@pytest.mark.slow
def test_a_tree_of_depth_4_fits_a_third_of_its_materialised_size(monkeypatch):
    monkeypatch.setattr(run, "SMALL", TINY)
    figures = run.measure_depth4()
    assert figures["identical"]
    assert 0 < figures["peak_kv_tokens"] <= figures["kv_budget"] <= figures["materialised_tokens"] / 3


def test_ra_isf_is_compared_with_algorithm_1():
    figures = run.measure_ra_isf(TINY, number=4)
    assert (figures["identical"], figures["questions"]) == (True, 4)


def test_padded_steps_are_compared_with_plain_ones():
    figures = measure_steps(TINY, rows=2, tokens=4, device="cpu", dtype="float32")
    assert (figures["equal"], figures["branches"]) == (1.0, 8)
    assert min(figures["plain"]["ms"], figures["graph"]["ms"]) > 0


def test_the_same_query_finds_the_same_passages():
    assert find_passages("w1 w2", TINY) == find_passages("w1 w2", TINY) != find_passages("w1 w3", TINY)
    tokenizer = build_tokenizer(512)
    assert len(tokenizer) == 512


@pytest.mark.gpu
@pytest.mark.slow
def test_on_a_gpu_at_the_shape_of_8b():
    figures = run.measure_rq_rag(run.LLAMA_3_8B, number=64, compared=2, device="cuda", dtype="bfloat16")
    assert figures["prefill_over_floor"] <= 1.1
    assert figures["speedup"] > 10
