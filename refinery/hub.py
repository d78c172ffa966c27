"""Push a finished run to a model or dataset hub, with a card that says how it was made."""

import json
import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from refinery.errors import RunDirError
from refinery.run_dir import read_run

_LEFT_BEHIND = ["checkpoints/*", "*.sqlite*", "*.partial", "*.ledger"]
# Licences that the hub knows by name, of those that question and passage collections are under; any other goes by `license_name`.
_HUB_LICENCES = {
    *("apache-2.0", "mit", "bsd-3-clause", "cc0-1.0", "cc-by-3.0", "cc-by-4.0", "cc-by-sa-3.0", "cc-by-sa-4.0"),
    *("cc-by-nc-4.0", "cc-by-nc-sa-4.0", "gfdl", "odc-by", "odbl", "pddl", "unknown"),
}


def push(run: Path, repository: str, *, private: bool) -> str:
    """Upload a train run as a model or a distill run as a dataset. Returns its address. Raises RunDirError for an unfinished run."""
    from huggingface_hub import HfApi

    (run / "README.md").write_text(card(run), encoding="utf-8")
    kind = "model" if read_run(run)["stage"] == "train" else "dataset"
    api = HfApi()
    address = api.create_repo(repository, repo_type=kind, private=private, exist_ok=True)
    api.upload_folder(repo_id=repository, repo_type=kind, folder_path=run, ignore_patterns=_LEFT_BEHIND)
    return str(address)


def card(run: Path) -> str:
    """The model or dataset card of a run. Raises RunDirError for an unfinished run."""
    record = read_run(run)
    stage = record["stage"]
    if stage not in ("train", "distill") or not (run / "metrics.json").exists():
        raise RunDirError(
            f"{run}: is {'not a train or distill run' if stage not in ('train', 'distill') else 'unfinished'}; nothing to push."
        )
    metrics = json.loads((run / "metrics.json").read_text(encoding="utf-8"))
    if stage == "distill":
        return dataset_card(record, metrics)
    manifest = run / "control_tokens.json"
    tokens = json.loads(manifest.read_text(encoding="utf-8"))["control_tokens"] if manifest.exists() else []
    return _model_card(record, metrics, tokens)


def dataset_card(record: dict[str, Any], metrics: dict[str, Any]) -> str:
    """The card of a distill run, from its `run.json` and `metrics.json`: what is in it, what made it, and what may be wrong with it."""
    recipe, asked = record["recipe"], metrics["questions"]
    lines = [
        *_front_matter(recipe, metrics),
        f"# {recipe['task']}",
        "",
        f"Labels made by Refinery {record['versions']['refinery']} (`refinery distill`), commit {record['commit']}.",
        f"Licence of the questions and passages: {recipe.get('licence') or 'not stated'}.",
        "",
        "## Rows",
        f"{asked} questions went in; {metrics['questions_labelled']} were labelled and {metrics['questions_rejected']} rejected.",
        "",
        *_table(("split", "rows"), metrics["rows_by_split"]),
        *_table(("label", "rows"), metrics["guards"]["label_balance"]),
        *_table(("rejected because", "questions"), metrics["rejected_by_reason"]),
        "## What may be wrong",
        *_findings(metrics["guards"]),
        "",
        *_models(recipe, metrics),
        "## Commands",
        "```",
        *_commands(record),
        "```",
        "",
        "## Recipe",
        *_json_block(recipe),
        "## Versions",
        *_json_block(record["versions"]),
    ]
    # An address may carry a password or a key, wherever on the card it stands.
    return re.sub(r"(https?://)[^/\s\"'@]*@", r"\1", re.sub(r"(https?://[^\s\"'?]*)\?[^\s\"']*", r"\1", "\n".join(lines)))


def _front_matter(recipe: dict[str, Any], metrics: dict[str, Any]) -> list[str]:
    """What the hub reads: licence, tags, and which file is which split."""
    licence = re.sub(r"[^a-z0-9.]+", "-", (recipe.get("licence") or "unknown").lower()).strip("-")
    named = {"license": licence} if licence in _HUB_LICENCES else {"license": "other", "license_name": licence}
    files = [{"split": re.sub(r"\W", "_", split), "path": f"{split}.parquet"} for split in metrics["rows_by_split"]]
    values = named | {
        "task_categories": ["question-answering"],
        "tags": ["rag-refinery", "retrieval-augmented-generation", recipe["task"]],
        "configs": [{"config_name": "default", "data_files": files}],
    }
    return ["---", yaml.safe_dump(values, sort_keys=False, allow_unicode=True).rstrip(), "---"]


def _findings(guards: dict[str, Any]) -> Iterable[str]:
    """One line a guard."""
    repeated, leaks, lengths = guards["duplicate_questions"], guards["answer_in_query"], guards.get("length_in_tokens")
    yield f"- Duplicate questions: {_of(repeated['duplicates'], repeated['questions'])}."
    if leaks["trajectories"]:
        yield f"- Trajectories with a search that gives the answer away: {_of(leaks['leaking'], leaks['trajectories'])}."
    for path, found in guards["evaluation_overlap"].items():
        same, nearly = _of(found["same"], found["questions"]), _of(found["nearly_the_same"], found["questions"])
        yield f"- Questions that are in `{path}`: {same}; nearly the same as one there: {nearly}."
    if not guards["evaluation_overlap"]:
        yield "- Overlap with evaluation sets: not looked for (`evaluation_sets`)."
    if lengths and lengths["rows_measured"]:
        percentiles = ", ".join(f"{name} {lengths[name]}" for name in lengths if re.fullmatch(r"p\d+", name))
        over = _of(lengths["over_max_length"], lengths["rows_measured"])
        yield f"- Tokens of a row: {percentiles}; longer than {lengths['max_length']}: {over}."


def _models(recipe: dict[str, Any], metrics: dict[str, Any]) -> Iterable[str]:
    """Each model that was asked: its sampling, tokens and cost; then the prompts."""
    for role in ("teacher", "target_endpoint"):
        config, spent = recipe.get(role), metrics.get(role)
        if not config or not spent:
            continue
        cost = "unknown" if spent["cost_usd"] is None else f"${spent['cost_usd']:.2f}"
        yield f"## Model asked: {role}"
        yield f"- Model: `{config['model']}`; answered as {', '.join(f'`{name}`' for name in spent['models']) or 'nobody'}."
        yield f"- Sampling: temperature {config['temperature']}, at most {config['max_tokens']} tokens."
        yield f"- Calls: {spent['calls']}, and {spent['replies_from_store']} replies from the store."
        yield f"- Tokens: {spent['num_prompt_tokens']} in prompts, {spent['num_completion_tokens']} in replies. Cost: {cost}."
        yield ""
    if recipe.get("target"):
        yield from (f"## Model asked: target\n- Model: `{recipe['target']['base']}`.", "")
    if metrics.get("prompts"):
        yield "## Prompts"
        yield from _table(("prompt", "SHA-256"), metrics["prompts"])


def _commands(record: dict[str, Any]) -> Iterable[str]:
    """What was typed: for a merged run, the shards' commands before its own."""
    for part in [*record.get("shards", []), record]:
        program, *arguments = part["command"]
        if Path(program).name == "__main__.py":  # python -m distill
            program, arguments = "refinery", [Path(program).parent.name, *arguments]
        yield shlex.join([Path(program).name, *arguments])


def _model_card(record: dict[str, Any], metrics: dict[str, Any], tokens: Sequence[dict[str, Any]]) -> str:
    recipe = record["recipe"]
    lines = [
        "---",
        "library_name: peft" if recipe.get("strategy") == "lora" else "tags: [rag-refinery]",
        "---",
        f"# {recipe['task']}",
        "",
        f"Made by Refinery {record['versions']['refinery']}, stage `{record['stage']}`, commit {record['commit']}.",
        "",
        "## Metrics",
        *_json_block(metrics),
        "## Recipe",
        *_json_block(recipe),
        "## Versions",
        *_json_block(record["versions"]),
    ]
    if tokens:
        lines += ["## Control tokens", "| token | id | role | writer |", "|---|---|---|---|"]
        lines += [f"| `{t['token']}` | {t['id']} | {t['role']} | {t['writer']} |" for t in tokens]
    return "\n".join(lines) + "\n"


def _of(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / max(whole, 1):.1%})"


def _table(head: tuple[str, str], values: dict[str, Any]) -> list[str]:
    if not values:
        return []
    return [f"| {head[0]} | {head[1]} |", "|---|---|", *(f"| {name} | {value} |" for name, value in values.items()), ""]


def _json_block(values: object) -> list[str]:
    return ["```json", json.dumps(values, indent=2), "```", ""]
