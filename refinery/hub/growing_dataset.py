"""A dataset on a hub that grows while its rows are made. Every commit is atomic, and files that the hub already has are not sent again.

The parts of one run are in a separate folder, whose name depends on everything that determines a part's rows. So a run that was killed
finds its own parts, compares their hashes, and sends those that are missing or differ; another run's parts are deleted.
"""

from collections.abc import Callable, Collection, Mapping

from refinery.errors import HubError
from refinery.hub.push import HUBS_OWN, File, hub_errors, open_repository
from refinery.runtime.files.fingerprint import sha256

_KIND = "dataset"


class DatasetParts:
    """The repository, with the hashes of its files as far as the hub reports them. Every method may raise HubError."""

    def __init__(self, repository: str, *, private: bool) -> None:
        self.repository, self.address = repository, open_repository(repository, kind=_KIND, private=private)
        self._there = self._hashes("main")

    @property
    def paths(self) -> Collection[str]:
        """The paths of all files in the repository."""
        return self._there.keys()

    def commit(self, files: Mapping[str, File], *, keeps: Callable[[str], bool]) -> int:
        """Add or replace `files`, and delete every other file whose path `keeps` refuses, in one commit. Returns how many were sent."""
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

        hashes = {path: sha256(file).hex() for path, file in files.items()}
        sent = [path for path in sorted(files) if self._there.get(path) != hashes[path]]
        deleted = [path for path in sorted(self._there) if path not in files and not keeps(path)]
        if not sent and not deleted:
            return 0
        operations = [
            *(CommitOperationAdd(path, file if isinstance(file := files[path], bytes) else str(file)) for path in sent),
            *(CommitOperationDelete(path) for path in deleted),
        ]
        with hub_errors(self.repository):
            HfApi().create_commit(self.repository, operations, commit_message="Pushed by Refinery", repo_type=_KIND)
        self._there = {path: hash for path, hash in self._there.items() if path not in deleted} | {path: hashes[path] for path in sent}
        return len(sent)

    def check(self, expected: Mapping[str, str]) -> None:
        """Raise HubError unless the hub has these files, with these SHA-256 hashes as far as it reports them."""
        there = self._hashes("main")
        if wrong := next((path for path, hash in expected.items() if path not in there or there[path] not in (None, hash)), None):
            raise HubError(f"{self.repository}: '{wrong}' is not what was pushed.")

    def _hashes(self, revision: str) -> dict[str, str | None]:
        """The SHA-256 of each file, or None for a small file that the hub does not store by its hash."""
        from huggingface_hub import HfApi
        from huggingface_hub.hf_api import RepoFile

        with hub_errors(self.repository):
            tree = list(HfApi().list_repo_tree(self.repository, recursive=True, repo_type=_KIND, revision=revision))
        files = [entry for entry in tree if isinstance(entry, RepoFile) and entry.path != HUBS_OWN]
        return {file.path: file.lfs.sha256 if file.lfs else None for file in files}
