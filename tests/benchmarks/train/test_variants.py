"""The table of training variants, rehearsed on the demo's checkpoint."""

import pytest

from benchmarks.train.variants import main


@pytest.mark.slow
def test_a_variant_has_its_time_and_how_far_its_loss_is_from_the_plain_one(capsys):
    main(["refinery/demo/checkpoint", "--max-length", "128", "--steps", "1", "--only", "^plain$|LoRA as one function$"])
    lines = capsys.readouterr().out.splitlines()[-2:]
    (plain, *_, off), (fused, ms, *_, fused_off) = ([part.strip() for part in line.split("|")[1:-1]] for line in lines)
    assert (plain, fused) == ("plain", "+ LoRA as one function")
    assert float(ms) > 0
    assert float(off) == 0
    assert float(fused_off) < 1e-3
