"""Where a checkpoint's small files are: its folder, or a copy of its hub repository in the client's own cache.

A checkpoint is named by a folder or by `owner/name`, with `@revision` for one that is not the newest (a branch, tag or commit). The weights
of a whole model are left to transformers, which knows their shards; everything else, adapters included, is small and fetched here.
"""

from functools import cache
from pathlib import Path

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


@cache
def _fetched(path: str) -> str:
    from huggingface_hub import snapshot_download

    name, revision = split_revision(path)
    try:
        return snapshot_download(name, revision=revision, allow_patterns=_SMALL)
    except (OSError, ValueError):  # the client's errors for the network, the repository and its name are of these two kinds
        return path
