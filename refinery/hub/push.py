"""Push a run to a hub, download what was pushed, and compare: the push is done when the copy gives the same outputs or rows.

Who pushes is decided by the hub's own client (its environment variables or its own store); no token passes through here.
"""

import fnmatch
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import yaml

from refinery.errors import HubError, RunDirError
from refinery.hub.dataset_card import dataset_card
from refinery.hub.model_card import DATA_FILE, model_card
from refinery.hub.reproduce import EXAMPLES_FILE, outputs, read_examples
from refinery.reporting.markdown import without_secrets
from refinery.runtime.fingerprint import sha256
from refinery.runtime.run_dir import read_metrics, read_run

# What is pushed, by name: a checkpoint holds safetensors only, and a run's checkpoints, ledgers and stores stay behind.
_OF_A_MODEL = ("*.safetensors", "*.json", "*.jinja", "*.model", "*.txt", "history.jsonl", EXAMPLES_FILE)
_OF_A_DATASET = ("*.parquet", "*.jsonl", "*.json")
_REWRITTEN = ("run.json", "README.md")  # by _texts
# Every file of a repository but the hub's own.
_HUBS_OWN = ".gitattributes"

_log = logging.getLogger(__name__)

File = Path | bytes
RepositoryKind = Literal["model", "dataset"]


def push(run: Path, repository: str, *, private: bool = True, revision: str = "main") -> str:
    """Push a finished train run as a model, or a distill run as a dataset, and prove that it arrived. Returns its address.

    Raises RunDirError for a run that cannot be pushed, and HubError when the hub refuses, cannot be reached, or gives back something else.
    """
    check_repository(repository)
    record, metrics = _read_finished(run)
    if record["stage"] == "distill":
        return _push_dataset(run, record, metrics, repository, private=private, revision=revision)
    examples = read_examples(run)
    if not examples:
        raise RunDirError(f"{run}: holds no {EXAMPLES_FILE} to try a copy by; it comes from an older version. Train it again.")
    address = open_repository(repository, kind="model", private=private)  # before a model is loaded: a refusal should not wait for it
    expected = outputs(run, examples)
    shown = list(zip((example["text"] for example in examples), expected, strict=True))
    files = _files(run, _OF_A_MODEL) | _texts(record, model_card(run, record, metrics, repository=repository, shown=shown))
    commit = _upload(files, repository, kind="model", revision=revision)
    with _downloaded(repository, commit, files, kind="model") as folder:
        given = outputs(folder, examples)
    check_reproduced(address, [example["text"] for example in examples], expected, given)
    _log.info("%s: %d files, %d outputs reproduced from what the hub gave back.", address, len(files), len(examples))
    return address


def card(run: Path, repository: str) -> str:
    """The card that `push` would write, but for the outputs it shows. Raises as `push` does before it asks the hub."""
    check_repository(repository)
    record, metrics = _read_finished(run)
    return dataset_card(record, metrics) if record["stage"] == "distill" else model_card(run, record, metrics, repository=repository)


def check_repository(repository: str) -> None:
    """Raise HubError unless the hub's client would take the name, owner included."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repository)
        valid = "/" in repository
    except HFValidationError:
        valid = False
    if not valid:
        raise HubError(f"--to {repository!r}: is not of the form OWNER/NAME in letters, digits, '-', '_' and single '.'.")


def check_reproduced(address: str, prompts: Sequence[str], expected: Sequence[str], given: Sequence[str]) -> None:
    """Raise HubError, saying what differed first, unless the copy gave what the run gave."""
    for prompt, ours, theirs in zip(prompts, expected, given, strict=True):
        if ours != theirs:
            raise HubError(f"{address}: does not reproduce the run: after {prompt[-60:]!r} it gives {theirs!r}, the run {ours!r}.")


def push_checkpoint(folder: Path, run: Path, repository: str, *, revision: str) -> None:
    """Push a checkpoint of a run that goes on, saved to `folder`, to a revision of its own. Raises HubError."""
    record = read_run(run)
    files = _files(folder, _OF_A_MODEL) | {name: run / name for name in (DATA_FILE, EXAMPLES_FILE)}
    texts = _texts(record, model_card(run, record, {}, repository=f"{repository}@{revision}"))
    _upload(files | texts, repository, kind="model", revision=revision)


def open_repository(repository: str, *, kind: RepositoryKind, private: bool) -> str:
    """Make the repository where there is none; returns its address.

    Raises HubError when the hub refuses, and when it is public already and was meant to be private.
    """
    from huggingface_hub import HfApi

    api = HfApi()
    with hub_errors(repository):
        address = str(api.create_repo(repository, repo_type=kind, private=private, exist_ok=True))
        if private and not api.repo_info(repository, repo_type=kind).private:
            raise HubError(f"{address}: is public already. Say --public to push there, or choose another name.")
    return address


def _upload(files: Mapping[str, File], repository: str, *, kind: RepositoryKind, revision: str) -> str:
    """Make `files` all that a branch holds, in one commit, whose id is returned."""
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

    api = HfApi()
    with hub_errors(repository):
        if revision != "main":
            api.create_branch(repository, branch=revision, repo_type=kind, exist_ok=True)
        there = set(api.list_repo_files(repository, repo_type=kind, revision=revision)) - {_HUBS_OWN}
        operations = [
            *(CommitOperationAdd(name, file if isinstance(file, bytes) else str(file)) for name, file in sorted(files.items())),
            *(CommitOperationDelete(name) for name in sorted(there - files.keys())),
        ]
        done = api.create_commit(repository, operations, commit_message="Pushed by Refinery", repo_type=kind, revision=revision)
    return done.oid


@contextmanager
def hub_errors(repository: str) -> Iterator[None]:
    """Whatever the client raises becomes a HubError of one line."""
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalTokenNotFoundError

    transport: type[Exception] = HfHubHTTPError.__mro__[1]  # the HTTP library's own base, whose name depends on the client's version
    try:
        yield
    except LocalTokenNotFoundError:
        raise HubError(f"{repository}: the hub's client finds no token. Run `hf auth login`, or set HF_TOKEN.") from None
    except HfHubHTTPError as error:
        hint = (
            " Run `hf auth login` with a token that may write there, or set HF_TOKEN." if error.response.status_code in (401, 403) else ""
        )
        raise HubError(f"{repository}: the hub refused with status {error.response.status_code}.{hint}") from None
    except (transport, OSError, HFValidationError) as error:
        raise HubError(f"{repository}: cannot be pushed to ({without_secrets(str(error)).splitlines()[0]}).") from None


def _push_dataset(run: Path, record: Any, metrics: Any, repository: str, *, private: bool, revision: str) -> str:
    address = open_repository(repository, kind="dataset", private=private)
    files = _files(run, _OF_A_DATASET) | _texts(record, dataset_card(record, metrics))
    commit = _upload(files, repository, kind="dataset", revision=revision)
    with _downloaded(repository, commit, files, kind="dataset") as folder:
        import datasets

        given = datasets.load_dataset(str(folder), cache_dir=str(folder / ".cache"))
        rows = {split: part.num_rows for split, part in given.items()}
    if sorted(rows.values()) != sorted(metrics["rows_by_split"].values()):
        raise HubError(f"{address}: `datasets.load_dataset` reads {rows} rows, the run made {metrics['rows_by_split']}.")
    _log.info("%s: %d files, %s rows read back from what the hub gave back.", address, len(files), sum(rows.values()))
    return address


def _read_finished(run: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    record = read_run(run)
    if record["stage"] not in ("train", "distill"):
        raise RunDirError(f"{run}: is not a train or distill run; nothing to push.")
    return record, read_metrics(run)


def _files(run: Path, patterns: tuple[str, ...]) -> dict[str, File]:
    """The run's own files of these kinds; `_texts` gives those that are written anew."""
    names = sorted(path.name for path in run.iterdir() if path.is_file() and path.name not in _REWRITTEN)
    return {name: run / name for name in names if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)}


def _texts(record: dict[str, Any], card: str) -> dict[str, File]:
    """The card, the recipe as a file to run again, and how the run was made; addresses without what may be a key."""
    texts = {
        "README.md": card,
        "recipe.yaml": yaml.safe_dump(record["recipe"], sort_keys=False, allow_unicode=True),
        "run.json": json.dumps(record, indent=2, ensure_ascii=False),
    }
    return {name: without_secrets(text).encode() for name, text in texts.items()}


@contextmanager
def _downloaded(repository: str, commit: str, files: Mapping[str, File], *, kind: str) -> Iterator[Path]:
    """What the hub gives for this commit, each file equal to the one that was pushed. Raises HubError naming one that is not."""
    from huggingface_hub import snapshot_download

    with TemporaryDirectory(prefix="refinery-push-") as temporary:
        with hub_errors(repository):
            snapshot_download(repository, repo_type=kind, revision=commit, local_dir=temporary)
        for name, file in files.items():
            copy = Path(temporary) / name
            if not copy.exists() or sha256(copy) != sha256(file):
                raise HubError(f"{repository}: '{name}' is not what was pushed (commit {commit}). Push again.")
        yield Path(temporary)
