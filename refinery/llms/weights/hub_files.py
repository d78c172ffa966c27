"""Where a checkpoint's small files are: its folder, or a copy of its hub repository in the client's own cache.

A checkpoint is named by a folder or by `owner/name`, with `@revision` for one that is not the newest (a branch, tag or commit). The weights
of a whole model are left to transformers, which knows their shards; everything else, adapters included, is small and fetched here.
"""

import json
from functools import cache
from pathlib import Path

from refinery.runtime.fingerprint import file_fingerprint, text_fingerprint

# Everything but the weights of a whole model, which is what a manifest, a tokenizer or an adapter is read from.
_SMALL = ["*.json", "*.jinja", "*.txt", "*.model", "adapter_model.safetensors"]


def split_revision(path: str) -> tuple[str, str | None]:
    """`owner/name@revision` as (`owner/name`, revision); a folder and a name without `@` have none."""
    if Path(path).is_dir():
        return path, None
    name, _, revision = path.partition("@")
    return name, revision or None


def small_files(path: str) -> str:
    """The folder of a checkpoint's small files. A name that cannot be fetched is returned: the loader that reads it says what is wrong."""
    return path if Path(path).is_dir() else _fetched(path)


def checkpoint_revision(path: str) -> str | None:
    """Of a folder the fingerprint of its weights, of a hub's model the commit that the client's cache holds; None for what is nowhere."""
    if Path(path).is_dir():
        return file_fingerprint(*sorted(Path(path).glob("*.safetensors")))
    return next((Path(file).parent.name for file in (_cached(path, "config.json"), _cached(path, "adapter_config.json")) if file), None)


def whole_revision(path: str) -> str | None:
    """The revision of a checkpoint, and of an adapter together with that of its base."""
    own, adapter = checkpoint_revision(path), _adapter_config(path)
    if own is None or adapter is None:
        return own
    return text_fingerprint([own, checkpoint_revision(adapter["base_model_name_or_path"]) or ""])


def _adapter_config(path: str) -> dict[str, str] | None:
    file = str(Path(path) / "adapter_config.json") if Path(path).is_dir() else _cached(path, "adapter_config.json")
    return json.loads(Path(file).read_text(encoding="utf-8")) if file and Path(file).exists() else None


def _cached(path: str, file: str) -> str | None:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    name, revision = split_revision(path)
    try:
        found = try_to_load_from_cache(name, file, revision=revision)
    except HFValidationError:  # neither a folder nor a hub name: the loader that reads it says what is wrong
        return None
    return found if isinstance(found, str) else None


@cache
def _fetched(path: str) -> str:
    from huggingface_hub import snapshot_download

    name, revision = split_revision(path)
    try:
        return snapshot_download(name, revision=revision, allow_patterns=_SMALL)
    except (OSError, ValueError):  # the client's errors for the network, the repository and its name are of these two kinds
        return path
