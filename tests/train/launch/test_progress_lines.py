import io
import sys
from contextlib import suppress
from types import SimpleNamespace

from refinery.runtime.run import progress as module
from train.launch.progress_lines import ShowProgress


def test_steps_are_counted_with_the_last_loss_and_score(monkeypatch, tmp_path):
    written = io.StringIO()
    monkeypatch.setattr(module, "_PLAIN_EVERY_SECONDS", 0.01)
    monkeypatch.setattr(sys, "stderr", written)
    state = SimpleNamespace(max_steps=10, global_step=4)
    with ShowProgress("train relevance", tmp_path) as shown:
        shown.on_train_begin(None, state, None)
        shown.on_log(None, state, None, logs={"loss": 0.5, "grad_norm": 1.0})
        shown.on_log(None, state, None, logs={"eval_f1": 0.75, "eval_samples_per_second": 3.0})
        shown.on_step_end(None, state, None)
        while "loss=0.5 f1=0.75" not in written.getvalue():
            pass
    assert "train relevance: 5/10" in written.getvalue()


def test_a_failure_ends_the_display(tmp_path):
    shown = ShowProgress("train relevance", tmp_path)
    with suppress(RuntimeError), shown:
        shown.on_train_begin(None, SimpleNamespace(max_steps=10, global_step=0), None)
        raise RuntimeError
    assert shown._progress is not None
    assert shown._progress._ended.is_set()
