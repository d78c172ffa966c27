"""The progress of training: steps, and below them the last losses and scores."""

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from transformers import TrainerCallback

from refinery.runtime.run.progress import Progress

_SHOWN = ("loss", "learning_rate", "epoch")


class ShowProgress(TrainerCallback):
    """Shows the trainer's steps within a `with` block, which also ends the display when training fails."""

    def __init__(self, title: str, folder: Path) -> None:
        self._title, self._folder, self._shown, self._logged = title, folder, ExitStack(), dict[str, float]()
        self._progress: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._shown.close()

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Show the bar, from the step that training continues at."""
        progress = Progress(self._title, total=state.max_steps, start=state.global_step, below=self._text, folder=self._folder)
        self._progress = self._shown.enter_context(progress)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Count the step."""
        if self._progress:
            self._progress.advance()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        """Remember the latest losses and held-out scores."""
        for name, value in (logs or {}).items():
            if isinstance(value, float) and (name in _SHOWN or (name.startswith("eval_") and "_per_second" not in name)):
                self._logged = self._logged | {name.removeprefix("eval_"): value}

    def _text(self) -> str:
        return " ".join(f"{name}={value:.4g}" for name, value in self._logged.items())
