"""The card of a distill run: the content of its dataset, its origin, and its possible flaws."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from refinery.reporting.commands import typed_command
from refinery.reporting.endpoints import cached_in_full, spent_by_role
from refinery.reporting.markdown import front_matter, json_block, licence_values, share, table_block, without_secrets


def dataset_card(record: dict[str, Any], metrics: dict[str, Any], *, parts: str | None = None) -> str:
    """The card of a distill run, from its `run.json` and `metrics.json`: the dataset's content, its origin, and its possible flaws.

    `parts` is the folder of a dataset that was pushed in parts.
    """
    recipe, asked = record["recipe"], metrics["questions"]
    lines = [
        *front_matter(_hub_values(recipe, list(metrics["rows_by_split"]), parts)),
        f"# {recipe['task']}",
        "",
        f"Labels made by Refinery {record['versions']['refinery']} (`refinery distill`), commit {record['commit']}.",
        f"License of the questions and passages: {recipe.get('licence') or 'not stated'}.",
        "",
        "## Rows",
        f"{asked} questions went in; {metrics['questions_labelled']} were labelled and {metrics['questions_rejected']} rejected.",
        "",
        *table_block(("split", "rows"), list(metrics["rows_by_split"].items())),
        *table_block(("label", "rows"), list(metrics["guards"]["label_balance"].items())),
        *table_block(("rejected because", "questions"), list(metrics["rejected_by_reason"].items())),
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
        *json_block(recipe),
        "## Versions",
        *json_block(record["versions"]),
    ]
    return without_secrets("\n".join(lines))


def provisional_card(record: dict[str, Any], rows_by_split: dict[str, int], *, done: int, total: int, parts: str) -> str:
    """The card of a dataset that is still being made: its progress, and how to read the rows so far."""
    recipe = record["recipe"]
    lines = [
        *front_matter(_hub_values(recipe, list(rows_by_split), parts)),
        f"# {recipe['task']}",
        "",
        f"**These labels are still being made: {share(done, total)} questions are done.** Rows may still be added and replaced.",
        "",
        f"Made by Refinery {record['versions']['refinery']} (`refinery distill`), commit {record['commit']}.",
        f"License of the questions and passages: {recipe.get('licence') or 'not stated'}.",
        "",
        *table_block(("split", "rows made so far"), list(rows_by_split.items())),
    ]
    return without_secrets("\n".join(lines))


def _hub_values(recipe: dict[str, Any], splits: Sequence[str], parts: str | None) -> dict[str, Any]:
    """The metadata that the hub reads: license, tags, and the files of each split."""
    files = [
        {"split": re.sub(r"\W", "_", split), "path": f"{split}.parquet" if parts is None else f"{parts}/{split}/*.parquet"}
        for split in splits
    ]
    return licence_values(recipe.get("licence")) | {
        "task_categories": ["question-answering"],
        "tags": ["rag-refinery", "retrieval-augmented-generation", recipe["task"]],
        **({"configs": [{"config_name": "default", "data_files": files}]} if files else {}),
    }


def _findings(guards: dict[str, Any]) -> Iterable[str]:
    """One line per guard."""
    repeated, leaks, lengths = guards["duplicate_questions"], guards["answer_in_query"], guards.get("length_in_tokens")
    yield f"- Duplicate questions: {share(repeated['duplicates'], repeated['questions'])}."
    if leaks["trajectories"]:
        yield f"- Trajectories with a search that gives the answer away: {share(leaks['leaking'], leaks['trajectories'])}."
    for path, found in guards["evaluation_overlap"].items():
        same, nearly = share(found["same"], found["questions"]), share(found["nearly_the_same"], found["questions"])
        yield f"- Questions that are in `{path}`: {same}; nearly the same as one there: {nearly}."
    if not guards["evaluation_overlap"]:
        yield "- Overlap with evaluation sets: not looked for (`evaluation_sets`)."
    if lengths and lengths["rows_measured"]:
        percentiles = ", ".join(f"{name} {lengths[name]}" for name in lengths if re.fullmatch(r"p\d+", name))
        over = share(lengths["over_max_length"], lengths["rows_measured"])
        yield f"- Tokens of a row: {percentiles}; longer than {lengths['max_length']}: {over}."


def _models(recipe: dict[str, Any], metrics: dict[str, Any]) -> Iterable[str]:
    """The sampling, tokens and cost of each model that was called, then the prompts."""
    for role, spent in spent_by_role(metrics).items():
        config = _config(recipe, role)
        if config is None:
            continue
        yield f"## Model asked: {role}"
        yield f"- Model: `{config['model']}`; answered as {', '.join(f'`{name}`' for name in spent['models']) or 'no model'}."
        yield f"- Sampling: temperature {config['temperature']}, at most {config['max_tokens']} tokens."
        yield f"- Calls: {spent['calls']}, and {spent['replies_from_store']} replies from the store."
        cached = f" ({spent['num_cached_tokens']} cached)" if spent.get("num_cached_tokens") else ""
        yield f"- Tokens: {spent['num_prompt_tokens']} in prompts{cached}, {spent['num_completion_tokens']} in replies. {_cost(spent)}"
        yield ""
    if recipe.get("target"):
        yield from (f"## Model asked: target\n- Model: `{recipe['target']['base']}`.", "")
    if metrics.get("prompts"):
        yield "## Prompts"
        yield from table_block(("prompt", "SHA-256"), list(metrics["prompts"].items()))


def _config(recipe: dict[str, Any], role: str) -> dict[str, Any] | None:
    """The part of the recipe that names the endpoint of a role."""
    kind, _, number = role.partition("_")
    if kind == "fallback":
        return recipe["fallbacks"][int(number) - 1]
    return recipe["escalate"]["teacher"] if role == "strong" else recipe.get(role)


def _cost(spent: dict[str, Any]) -> str:
    """The cost of all attempts, and of the last attempt if there were several."""
    whole, last = spent["cost_usd"], spent.get("attempt_cost_usd")
    if whole is None:
        return "Cost: unknown."
    attempts = "" if last in (None, whole) else f" in all attempts, ${last:.2f} in the last one"
    return f"Cost: ${whole:.2f}{attempts}{cached_in_full(spent)}."


def _commands(record: dict[str, Any]) -> Iterable[str]:
    """The commands that were typed. For a merged run, the shards' commands come before its own."""
    return (typed_command(part["command"]) for part in [*record.get("shards", []), record])
