"""Join the runs of all shards into one run, as if a single machine had made it."""

import json
import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distill.examples import copy_examples
from distill.guards import EXAMPLES, Duplicates
from distill.label_task import TASKS
from distill.output.merged_review import review_merged
from distill.output.parquet import join_parquet
from distill.recipe import DistillRecipe
from distill.teacher.agreement import with_agreement
from refinery.contract.split_name import is_split
from refinery.errors import RunDirError
from refinery.hub.dataset_card import dataset_card
from refinery.prompts.own import prompts_of
from refinery.runtime import plugins
from refinery.runtime.recipe import build_recipe
from refinery.runtime.run_dir import RunDir, check_fingerprints, environment, read_metrics, read_run, write_json

# Keys that may differ between the shards of one recipe: the shard itself, and where each machine stores its files.
_OF_ONE_SHARD = ("shard", "output_dir", "store")


def merge(out: Path, runs: Sequence[Path]) -> dict[str, Any]:
    """Write one run to `out`: the rows of the shards in order, and the sums of their counts. Returns the content of its `metrics.json`.

    Raises RunDirError unless the runs are the finished shards 0 to n-1 of one recipe, each once, and `out` is empty.
    """
    if out.exists() and any(out.iterdir()):
        raise RunDirError(f"{out}: is not empty. Name a new folder for the merged run.")
    records = {run: _finished_shard(run) for run in runs}
    runs = _in_order(runs, records)
    _check_recipes(runs, records)
    metrics = _add_up([_metrics(run) for run in runs])
    out.mkdir(parents=True, exist_ok=True)
    first = records[runs[0]]
    record = {
        "stage": "distill",
        "recipe": first["recipe"] | {"shard": None, "output_dir": str(out), "store": None},
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "shards": [{key: records[run].get(key) for key in ("command", "commit", "started")} for run in runs],
        **environment(),
    }
    write_json(out / "run.json", record)
    for name in _row_files(runs):
        _join([run / name for run in runs], out / name)
    for split in metrics["rows_by_split"]:
        join_parquet([part for run in runs if (part := run / f"{split}.parquet").exists()], out / f"{split}.parquet")
    if (runs[0] / "passages.jsonl").exists():  # the passages that questions were written from; every shard has all of them
        shutil.copyfile(runs[0] / "passages.jsonl", out / "passages.jsonl")
    if prompts_of(runs[0]).is_dir():
        shutil.copytree(prompts_of(runs[0]), prompts_of(out))
    copy_examples(runs[0], out)
    _join_stores(runs, records, out)
    if review := plugins.find(TASKS, first["recipe"]["task"]).review:
        review_merged(out, review(), metrics)
    if "agreement" in metrics:
        metrics["agreement"] = {between: with_agreement(found["counts"]) for between, found in metrics["agreement"].items()}
    metrics["guards"]["duplicate_questions"] = _duplicates([out / f"{split}.jsonl" for split in metrics["rows_by_split"]])
    (out / "README.md").write_text(dataset_card(record, metrics), encoding="utf-8")
    RunDir(out).write_metrics(metrics)
    return metrics


def _finished_shard(run: Path) -> dict[str, Any]:
    record = read_run(run)
    if record["stage"] != "distill" or not record["recipe"].get("shard"):
        raise RunDirError(f"{run}: is not a shard of a distill run. Shards are made with `shard=i/n`.")
    read_metrics(run)
    return record


def _metrics(run: Path) -> dict[str, Any]:
    metrics = read_metrics(run)
    if strange := [split for split in metrics["rows_by_split"] if not is_split(split)]:
        raise RunDirError(f"{run / 'metrics.json'}: rows_by_split names {strange[0]!r}, which is not a split. Run that shard again.")
    return metrics


def _in_order(runs: Sequence[Path], records: dict[Path, dict[str, Any]]) -> list[Path]:
    """The runs by the number of their shard, once every shard is there exactly once."""
    by_number: dict[int, Path] = {}
    count = int(records[runs[0]]["recipe"]["shard"].split("/")[1])
    for run in runs:
        number, total = map(int, records[run]["recipe"]["shard"].split("/"))
        if total != count:
            raise RunDirError(f"{run}: is shard {number}/{total}, but {runs[0]} is one of {count}. Merge shards of one run.")
        if number in by_number:
            raise RunDirError(f"{run}: is shard {number}/{count}, and so is {by_number[number]}. Name each shard once.")
        by_number[number] = run
    if missing := [f"{number}/{count}" for number in range(count) if number not in by_number]:
        raise RunDirError(f"shard {', '.join(missing)} is missing. Name the output_dir of every shard.")
    return [by_number[number] for number in range(count)]


def _check_recipes(runs: Sequence[Path], records: dict[Path, dict[str, Any]]) -> None:
    first = records[runs[0]]["recipe"]
    for run in runs:
        recipe = records[run]["recipe"]
        if changed := sorted(key for key in first.keys() | recipe if recipe.get(key) != first.get(key) and key not in _OF_ONE_SHARD):
            raise RunDirError(f"{run}: was made with a different recipe than {runs[0]} (changed: {', '.join(changed)}). Run it again.")
        check_fingerprints(run, records[runs[0]].get("fingerprints", {}), records[run].get("fingerprints", {}))


def _row_files(runs: Sequence[Path]) -> list[str]:
    """The names of the files whose rows are joined: labels by split, in both layouts, and failures."""
    return sorted({path.name for run in runs for path in run.glob("*.jsonl")} - {"passages.jsonl"})


def _join(parts: Sequence[Path], joined: Path) -> None:
    partial = joined.with_name(joined.name + ".partial")
    with partial.open("wb") as file:
        for part in parts:
            if part.exists():  # a small shard may have no rows of a split
                with part.open("rb") as rows:
                    shutil.copyfileobj(rows, file)
    partial.replace(joined)


def _join_stores(runs: Sequence[Path], records: dict[Path, dict[str, Any]], out: Path) -> None:
    """Join the replies of the shards, so that the prompts behind the labels can be shown, unless a recipe has put them elsewhere."""
    if any(records[run]["recipe"].get("store") for run in runs):
        return
    recipe = build_recipe(records[runs[0]]["recipe"], DistillRecipe, where=str(runs[0] / "run.json"))
    plugin, places = recipe.store_plugin, [recipe.store_place(run) for run in runs]
    if plugin.join and all(map(plugin.exists, places)):
        plugin.join(places, recipe.store_place(out))


def _add_up(values: Sequence[Any], key: str = "") -> Any:
    """The sum of the same count in every shard; if one shard's count is unknown, so is the sum."""
    first = values[0]
    if isinstance(first, dict):
        keys = dict.fromkeys(key for value in values for key in value)
        return {key: _add_up([value[key] for value in values if key in value], key) for key in keys}
    if isinstance(first, list):
        return [item for value in values for item in value][:EXAMPLES]
    if any(value is None for value in values):
        return None
    if isinstance(first, str) or key == "max_length" or re.fullmatch(r"p\d+", key):
        return max(values)  # percentiles of lengths cannot be added, so the longest shard's are taken
    return sum(values)


def _duplicates(files: Sequence[Path]) -> dict[str, Any]:
    """Run the guard again for duplicates across shards. The rows of a question are adjacent, and its own text comes first."""
    duplicates = Duplicates()
    for path in files:
        last = None
        with path.open(encoding="utf-8", newline="\n") as rows:
            for row in map(json.loads, rows):
                question_id = row.get("question_id", row.get("id"))
                if question_id != last:
                    duplicates.add(row.get("question", row.get("text")))
                last = question_id
    return duplicates.report()
