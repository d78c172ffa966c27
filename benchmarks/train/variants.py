"""What each part of a training step costs: the step of `mfu.py`, with one change after the other.

    python -m benchmarks.train.variants [SHAPE] [--max-length TOKENS] [--steps STEPS] [--only REGEX]

Prints one line of a table as soon as it is measured. Every variant trains the same bins from the same adapter. `off plain` is the relative
difference of its last loss from the plain one's, which rounding in bfloat16 explains up to about 1e-3; dropout has another loss.
"""

import re
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from importlib.util import find_spec
from typing import Any

import torch
from transformers import PrinterCallback, TrainerCallback

from benchmarks.train.mfu import build_lora_trainer, flops_per_step, peak_flops
from train.families.fused_layers import fused_layers

_WARM_UP = 3
_COMPILER = "inductor" if torch.cuda.is_available() else "aot_eager"
Change = Callable[[Any], AbstractContextManager[Any]]  # of a trainer, for one variant


def main(argv: Sequence[str] | None = None) -> None:
    """Measure the variants."""
    parser = ArgumentParser(prog="python -m benchmarks.train.variants")
    parser.add_argument("shape", nargs="?", default="meta-llama/Llama-2-7b-hf", help="one of refinery/llms/weights/shapes.py, or a folder")
    parser.add_argument("--max-length", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=8, help="timed steps of each variant")
    parser.add_argument("--only", default="", help="variants whose names match")
    arguments = parser.parse_args(argv)
    steps = _WARM_UP + arguments.steps
    with tempfile.TemporaryDirectory() as folder:
        trainer = build_lora_trainer(arguments.shape, folder, rows=16 * steps, max_length=arguments.max_length)
        trainer.args.save_strategy, trainer.args.max_steps = "no", steps
        trainer.remove_callback(PrinterCallback)
        print(f"{arguments.shape}, bins of {arguments.max_length} tokens, {_device()}, torch {torch.__version__}, median of steps\n")
        print("| variant | ms a bin | MFU | GiB | loss | off plain |\n|---|---|---|---|---|---|", flush=True)
        for row in _rows(trainer, {name: changes for name, changes in variants().items() if re.search(arguments.only, name)}):
            print(f"| {' | '.join(row)} |", flush=True)


def _rows(trainer: Any, chosen: dict[str, tuple[Change, ...]]) -> Iterator[list[str]]:
    """The columns of each variant; one that fails has its error, and the others go on."""
    begin = {name: value.clone() for name, value in trainer.model.state_dict().items() if "lora_" in name}
    peak, flops, plain = peak_flops(), flops_per_step(trainer), None
    for name, changes in chosen.items():
        trainer.model.load_state_dict(begin, strict=False)
        try:
            ms, memory, loss = _measure(trainer, changes)
        except Exception as error:
            yield [name, f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}", "", "", "", ""]
            continue
        plain = plain or loss
        mfu = f"{flops / (ms / 1e3 * peak):.3f}" if peak else ""
        yield [name, f"{ms:.1f}", mfu, f"{memory:.1f}", f"{loss:.5f}", f"{abs(loss - plain) / plain:.1e}"]


def variants() -> dict[str, tuple[Change, ...]]:
    """The changes of each variant, by its name; the first has none. Liger's, which cannot be undone, are last."""
    norms: Change = lambda trainer: fused_layers(trainer.model, adapters=False)  # noqa: E731
    adapters: Change = lambda trainer: fused_layers(trainer.model)  # noqa: E731
    fused: Change = lambda trainer: fused_layers(trainer.model, compiler=_COMPILER)  # noqa: E731
    found: dict[str, tuple[Change, ...]] = {
        "plain": (),
        "+ RMSNorm in one kernel": (norms,),
        "+ LoRA as one function": (adapters,),
        "+ SwiGLU and rotary embedding compiled (`fused_layers`)": (fused,),
        "fused, dropout 0.1": (fused, lambda trainer: _dropout(trainer, 0.1)),
        "fused, all layers recomputed": (fused, _recomputed),
        "plain, all layers recomputed": (_recomputed,),
        "norms and LoRA fused, decoder layers compiled": (adapters, _compiled_layers),
        "plain, again": (),
    }
    if torch.cuda.is_available() and find_spec("liger_kernel"):
        found["Liger's RMSNorm, SwiGLU and rotary embedding"] = (_liger,)
        found["the same, LoRA as one function"] = (_liger, adapters)
    return found


class _Clock(TrainerCallback):
    """The end of each step: of a GPU by the clock, once it is idle; of a CPU, which others may use, by the process's own time."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Take the time."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.ends.append(time.perf_counter() if torch.cuda.is_available() else time.process_time())


def _measure(trainer: Any, changes: tuple[Change, ...]) -> tuple[float, float, float]:
    """(milliseconds of a step, peak GiB, last loss)."""
    clock, losses = _Clock(), []
    compute, trainer.optimizer, trainer.lr_scheduler = trainer.compute_loss, None, None
    trainer.compute_loss = lambda *a, **k: losses.append(loss := compute(*a, **k)) or loss
    trainer.add_callback(clock)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    try:
        with ExitStack() as stack:
            for change in changes:
                stack.enter_context(change(trainer))
            trainer.train()
    finally:
        trainer.remove_callback(clock)
        vars(trainer.model).pop("forward", None)  # autocast around it, which the next training adds again
        del trainer.compute_loss
        trainer.model.zero_grad(set_to_none=True)
    times = sorted(end - begin for begin, end in zip(clock.ends[_WARM_UP - 1 :], clock.ends[_WARM_UP:], strict=False))
    memory = torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else 0.0
    return 1e3 * times[len(times) // 2], memory, float(losses[-1].detach())


@contextmanager
def _dropout(trainer: Any, share: float) -> Iterator[None]:
    layers = [module for module in trainer.model.modules() if hasattr(module, "lora_dropout")]
    before = [layer.lora_dropout["default"] for layer in layers]
    for layer in layers:
        layer.lora_dropout["default"] = torch.nn.Dropout(share)
    try:
        yield
    finally:
        for layer, module in zip(layers, before, strict=True):
            layer.lora_dropout["default"] = module


@contextmanager
def _recomputed(trainer: Any) -> Iterator[None]:
    trainer.args.gradient_checkpointing = True
    try:
        yield
    finally:
        trainer.args.gradient_checkpointing = False
        trainer.model.gradient_checkpointing_disable()
        trainer.model.disable_input_require_grads()


@contextmanager
def _compiled_layers(trainer: Any) -> Iterator[None]:
    torch._dynamo.config.recompile_limit = 64
    layers = trainer.model.get_decoder().layers
    for layer in layers:
        layer.compile(dynamic=True, backend=_COMPILER)
    try:
        yield
    finally:
        for layer in layers:
            layer._compiled_call_impl = None


def _liger(trainer: Any) -> AbstractContextManager[None]:
    from liger_kernel.transformers import _apply_liger_kernel_to_instance  # pyright: ignore[reportMissingImports]

    _apply_liger_kernel_to_instance(model=trainer.model.get_base_model(), fused_linear_cross_entropy=False, cross_entropy=False)
    return nullcontext()


def _device() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "a CPU"


if __name__ == "__main__":
    main()
