"""Push a finished run to a model or dataset hub, with a card that says how it was made."""

import json
from pathlib import Path

from refinery.errors import RunDirError
from refinery.run_dir import read_run

_LEFT_BEHIND = ["checkpoints/*", "*.sqlite*", "*.partial", "*.ledger"]


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
    """The model or dataset card: recipe, versions, metrics and control tokens of the run. Raises RunDirError for an unfinished run."""
    record = read_run(run)
    stage = record["stage"]
    if stage not in ("train", "distill") or not (run / "metrics.json").exists():
        raise RunDirError(
            f"{run}: is {'not a train or distill run' if stage not in ('train', 'distill') else 'unfinished'}; nothing to push."
        )
    recipe, metrics = record["recipe"], json.loads((run / "metrics.json").read_text(encoding="utf-8"))
    manifest = run / "control_tokens.json"
    tokens = json.loads(manifest.read_text(encoding="utf-8"))["control_tokens"] if manifest.exists() else []
    lines = [
        "---",
        "library_name: peft" if recipe.get("strategy") == "lora" else "tags: [rag-refinery]",
        "---",
        f"# {recipe['task']}",
        "",
    ]
    lines += [
        f"Made by Refinery {record['versions']['refinery']}, stage `{stage}`, commit {record['commit']}.",
        "",
    ]
    lines += [
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


def _json_block(values: object) -> list[str]:
    return ["```json", json.dumps(values, indent=2), "```", ""]
