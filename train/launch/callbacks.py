"""Callbacks of a training run of any family: SIGTERM, the first save, checkpoints pushed to a hub, recomputed layers, non-finite losses."""

import logging
import math
import queue
import random
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import TrainerCallback
from transformers.modeling_layers import GradientCheckpointingLayer

from refinery.contract.segments import EncodedRow
from refinery.errors import RefineryError, Stopped, TrainingError
from refinery.hub.push import push_checkpoint
from refinery.hub.reference_outputs import outputs_of, read_examples
from refinery.llms.weights.checkpoint import load_base, load_with_adapters, read_adapter_config
from refinery.runtime.run.process_group import in_first_process
from refinery.runtime.run.run_dir import RunDir
from train.launch.launch import without_zero3_init
from train.recipe import TrainRecipe
from train.rows.length_filter import sides

_log = logging.getLogger(__name__)

# Writes the checkpoint that inference loads to a folder and returns the trained weights by name. All processes call it; the first writes.
Save = Callable[[Path], dict[str, Any]]


class SaveOnSignal(TrainerCallback):
    """On SIGTERM: finish the step, save a checkpoint, and end training. The signal reaches the processes of a launch at different steps,
    so they ask each other after each one. They read the answer after the next step, when it is there without waiting for the device."""

    def __init__(self, accelerator: Any) -> None:
        self._accelerator = accelerator
        self._received = self._agreed = False
        self._asked: tuple[torch.Tensor, Any] | None = None  # after the step before: how many were told to stop, once the event is over

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Within this context, SIGTERM is handled; outside it, its previous handler is. Only the main thread can handle signals."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGTERM, self._receive)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)

    def _receive(self, number: int, frame: Any) -> None:
        self._received = True

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Request a checkpoint and the end of training if any process was told to stop."""
        if self._accelerator.num_processes > 1:
            self._agree()
        else:
            self._agreed = self._received
        if self._agreed:
            control.should_save = control.should_training_stop = True

    def _agree(self) -> None:
        """Collective: read what was asked after the step before, and ask again."""
        if self._asked:
            told, event = self._asked
            if event is not None:
                event.synchronize()
            self._agreed |= bool(told)
        received = torch.tensor(float(self._received), device=self._accelerator.device)
        told = self._accelerator.reduce(received, reduction="sum").to("cpu", non_blocking=True)
        event = torch.cuda.Event() if received.is_cuda else None
        if event is not None:
            event.record()
        self._asked = told, event

    def raise_if_stopped(self, recipe: TrainRecipe, state: Any) -> None:
        """Raise Stopped, saying how to resume, if a signal ended training before its last step."""
        if self._agreed and state.global_step < state.max_steps:
            raise Stopped(
                f"{recipe.output_dir}: stopped by SIGTERM after step {state.global_step} of {state.max_steps}; the checkpoint is saved. "
                "Go on with the same command and --resume."
            )


class BeginRun(TrainerCallback):
    """From the first checkpoint on, the run can be resumed, and `run.json` keeps another run from using the folder."""

    def __init__(self, recipe: TrainRecipe) -> None:
        self._output = RunDir(recipe.output_dir)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start the run, in the first process."""
        if state.is_world_process_zero:
            self._output.begin()


class StopEarly(TrainerCallback):
    """Ends training after `early_stopping_patience` evaluations without a better score.

    transformers' own callback sees only the metrics of its own evaluation, which are without the scores of GenerativeEvalMixin. Each
    scored checkpoint is saved, after the best one so far is known. An equal score with a lower loss is not a better score.
    """

    def __init__(self, patience: int, eval_steps: int) -> None:
        self._patience_steps = patience * eval_steps

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Request the end of training, in every process."""
        scores = {log["step"]: log[args.metric_for_best_model] for log in state.log_history if args.metric_for_best_model in log}
        reached = next((step for step, score in scores.items() if score == state.best_metric), 0)
        if state.global_step - reached >= self._patience_steps:
            control.should_training_stop = True


class CheckFirstSave(TrainerCallback):
    """After the first step: save, load as inference will, compare what was trained, and generate once. A save that is broken is found in
    the first minute. Nothing of training changes: no weight, no mode, no random number."""

    def __init__(self, recipe: TrainRecipe, save: Save) -> None:
        self._recipe, self._save = recipe, save

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Raise TrainingError, naming the first tensor that differs, when the saved checkpoint is not the model in training."""
        if state.global_step != 1:
            return
        folder = self._recipe.output_dir / "checkpoints" / "first_save"
        with _random_state_kept():
            trained = self._save(folder)
            in_first_process(lambda: self._try(folder, trained))

    def _try(self, folder: Path, trained: dict[str, Any]) -> None:
        try:
            with without_zero3_init():
                loaded, tokenizer = _load(folder)
                _compare(trained, dict(loaded.named_parameters()))
                outputs_of(loaded, tokenizer, read_examples(self._recipe.output_dir)[:1])
        except (RefineryError, OSError, ValueError, RuntimeError) as error:
            raise TrainingError(f"{folder}: what was saved after step 1 cannot be used: {error}") from error
        shutil.rmtree(folder)


def _load(folder: Path) -> tuple[Any, Any]:
    """(model, tokenizer), with an adapter left unmerged, so that its weights can be compared."""
    adapter = read_adapter_config(str(folder))
    if adapter is None:
        return load_base(str(folder), decoded=False)
    return load_with_adapters(adapter["base_model_name_or_path"], {"default": str(folder)}, decoded=False)


def _compare(trained: dict[str, Any], saved: dict[str, Any]) -> None:
    for name, weights in trained.items():
        if name not in saved:
            raise TrainingError(f"'{name}' was trained and is not in it.")
        if not torch.equal(saved[name].data, weights.to("cpu", saved[name].dtype)):
            raise TrainingError(f"'{name}' is not as it was trained.")


class PushCheckpoints(TrainerCallback):
    """Push each checkpoint to a separate revision, `step-000000200`, while training goes on. A failed push is logged.

    One checkpoint is pushed at a time. Of those that are saved meanwhile, only the newest waits, because a hub that is slower than
    training would never catch up.
    """

    def __init__(self, recipe: TrainRecipe, save: Save) -> None:
        self._recipe, self._save = recipe, save
        self._folder = recipe.output_dir / "checkpoints" / "to_push"
        self._waiting: queue.Queue[int | None] = queue.Queue()  # steps; None after the last one
        self._thread: threading.Thread | None = None

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Save the checkpoint in a folder of its own, and leave the rest to the thread of the first process."""
        if self._recipe.hub is None:
            return
        self._save(self._folder / str(state.global_step))
        if not state.is_world_process_zero:
            return
        self._drop_waiting()
        self._waiting.put(state.global_step)
        if self._thread is None:
            self._thread = threading.Thread(target=self._push_all, daemon=True)  # a run that ends in an error does not wait for it
            self._thread.start()

    def finish(self) -> None:
        """Wait until every checkpoint is pushed. To be called when no other process waits for this one any more."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
            shutil.rmtree(self._folder)

    def _drop_waiting(self) -> None:
        with suppress(queue.Empty):
            step = self._waiting.get_nowait()
            shutil.rmtree(self._folder / str(step))
            _log.warning("the checkpoint of step %s stays here only, because an earlier one is still being pushed", step)

    def _push_all(self) -> None:
        while (step := self._waiting.get()) is not None:
            self._push(step)

    def _push(self, step: int) -> None:
        assert self._recipe.hub is not None
        folder = self._folder / str(step)
        try:
            push_checkpoint(folder, self._recipe.output_dir, self._recipe.hub.to, revision=f"step-{step:09d}")
        except Exception as error:  # a thread that ends would leave all later checkpoints unpushed
            _log.warning("the checkpoint of step %d stays here only: %s", step, error)
        shutil.rmtree(folder)


class RecomputeFirstLayers(TrainerCallback):
    """Leaves the last layers of each stack out of what the backward pass computes again, when `gradient_checkpointing` is a share.

    The first layers are recomputed, because the backward pass reaches them when it has released the others.
    """

    def __init__(self, share: float) -> None:
        self._share = share

    def on_train_begin(self, args: Any, state: Any, control: Any, *, model: Any, **_: Any) -> None:
        """The trainer has turned it on for every layer by then."""
        for stack in _layer_stacks(model):
            for layer in stack[math.ceil(self._share * len(stack)) :]:
                layer.gradient_checkpointing = False


def _layer_stacks(model: Any) -> list[list[GradientCheckpointingLayer]]:
    """The model's stacks of layers: one of a decoder, two of an encoder-decoder."""
    lists = (module for module in model.modules() if isinstance(module, torch.nn.ModuleList))
    stacks = ([layer for layer in layers if isinstance(layer, GradientCheckpointingLayer)] for layers in lists)
    return [stack for stack in stacks if stack]


def watch_loss(trainer: Any, rows: Sequence[EncodedRow], recipe: TrainRecipe) -> None:
    """Make the trainer stop with TrainingError at a batch whose loss is not finite, before a weight changes; the error names its rows.

    The losses of all batches that a step accumulates are looked at together, before its last backward pass: looking waits for the device,
    and under DeepSpeed that pass changes the weights.
    """
    compute = trainer.compute_loss
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []  # of the step's batches: loss, input ids

    def watched(model: Any, inputs: dict[str, Any], *arguments: Any, **options: Any) -> Any:
        input_ids = _read(inputs)
        loss = compute(model, inputs, *arguments, **options)
        if model.training:
            seen.append((loss.detach(), input_ids))
            if trainer.accelerator.sync_gradients:
                _check_finite(seen, trainer.state.global_step, rows, recipe)
                seen.clear()
        return loss

    trainer.compute_loss = watched


def _check_finite(seen: Sequence[tuple[torch.Tensor, torch.Tensor]], step: int, rows: Sequence[EncodedRow], recipe: TrainRecipe) -> None:
    losses = torch.stack([loss for loss, _ in seen]).tolist()
    for loss, (_, input_ids) in zip(losses, seen, strict=True):
        if not math.isfinite(loss):
            ids = ", ".join(_rows_in(input_ids, rows))
            raise TrainingError(
                f"{recipe.output_dir}: after step {step} the loss is {loss} on the batch of rows {ids}. "
                f"Look at them with --preview; if they are sound, lower learning_rate ({recipe.learning_rate:g}) and begin again."
            )


def _read(inputs: dict[str, Any]) -> torch.Tensor:
    """The tokens of a batch (rows, tokens): of encoded rows, or of questions with what was sampled after them."""
    return inputs["input_ids"] if "input_ids" in inputs else torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)


def _rows_in(input_ids: torch.Tensor, rows: Sequence[EncodedRow]) -> list[str]:
    """Question ids of the rows that a batch holds, padded or packed. They are looked up when needed, since a batch has no ids."""
    sequences = ["".join(map(chr, sequence)) for sequence in input_ids.tolist()]
    found = [
        row.question_id
        for row in rows
        if any("".join(map(chr, side.input_ids)) in sequence for side in sides(row) for sequence in sequences)
    ]
    return list(dict.fromkeys(found))


@contextmanager
def _random_state_kept() -> Iterator[None]:
    """Restore the random state, so that random numbers drawn inside do not change those that follow."""
    python, arrays = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[torch.cuda.current_device()] if torch.cuda.is_available() else []):
        yield
    random.setstate(python)
    np.random.set_state(arrays)
