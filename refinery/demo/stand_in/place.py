"""The place where stand-in steps run: a folder with shipped rows instead of downloads, tiny models, and a server for every endpoint."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from refinery.demo.stand_in.models import write_tiny_models
from refinery.demo.teacher.replies import DemoTeacher
from refinery.demo.teacher.server import serving
from refinery.demo.world.entities import demo_worlds
from refinery.runtime.recipes.shipped_files import DEMO_CHECKPOINT, shipped
from refinery.text import normalize_answer

STAND_INS = "recipes/stand_in"  # the shipped rows for each download, under its own path
TINY_MODELS = "tiny_models"
_JUDGED = "\nDoes the Prediction imply the Ground-truth Answer?"


@contextmanager
def stand_in_place(folder: Path, *, tiny_models: bool) -> Iterator[dict[str, str]]:
    """Work in `folder` until the block ends. Gives the values that a project's file may refer to.

    `server` is the address of a chat server that knows the demo's world and judges answers; `checkpoint` is the demo's causal model;
    `tiny_models` is a folder with an `encoder`, a `cross_encoder`, an `nli` and a `self_rag` model, made only on request.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(shipped(STAND_INS), folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("README.md"))
    before = Path.cwd()
    os.chdir(folder)
    try:
        if tiny_models:
            write_tiny_models(Path(TINY_MODELS))
        with serving(_Replies().reply) as server:
            yield {"server": server.base_url, TINY_MODELS: TINY_MODELS, "checkpoint": str(shipped(DEMO_CHECKPOINT))}
    finally:
        os.chdir(before)


class _Replies:
    """The demo's teacher, which also judges answers (MIGRES Table 15)."""

    def __init__(self) -> None:
        self._teacher = DemoTeacher(demo_worlds(0))

    def reply(self, prompt: str) -> str:
        if _JUDGED not in prompt:
            return self._teacher.reply(prompt)
        asked = prompt.rpartition(_JUDGED)[0]
        prediction, _, gold = asked.rpartition("\nPrediction\n")[2].partition("\nGround-truth Answer\n")
        said = normalize_answer(prediction)
        return "Yes" if any(normalize_answer(answer) in said for answer in gold.strip().split(" / ")) else "No"
