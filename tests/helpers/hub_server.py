"""A stand-in for the model hub: the part of its HTTP interface that its own client uses to push and to pull, held in memory.

A process of its own (`python tests/helpers/hub_server.py PORT TOKEN`); clients reach it through HF_ENDPOINT and are not patched. It asks
for the token on every write and for everything private, as the hub does. `/stand-in/...` is for tests: what it
holds, and a path that it shall serve wrongly.
"""

import base64
import hashlib
import json
import sys
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from aiohttp import web

Files = dict[str, str]  # path -> sha256 of its bytes


@dataclass
class Repository:
    """Branches and tags name commits; a commit is the files it holds."""

    private: bool
    revisions: dict[str, str] = field(default_factory=dict)
    commits: dict[str, Files] = field(default_factory=dict)

    def commit(self, branch: str, files: Files) -> str:
        """Add a commit to a branch; returns its id."""
        parent = self.revisions.get(branch, "")
        oid = hashlib.sha1(json.dumps([parent, len(self.commits), files]).encode(), usedforsecurity=False).hexdigest()
        self.commits[oid] = files
        self.revisions[branch] = oid
        return oid

    def resolve(self, revision: str) -> str | None:
        """The commit that a branch, a tag or a commit id names."""
        return self.revisions.get(revision, revision if revision in self.commits else None)


class HubStandIn:
    """The handlers, and what they hold."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.repositories: dict[tuple[str, str], Repository] = {}
        self.blobs: dict[str, bytes] = {}
        self.corrupt: set[str] = set()
        self.refuses_commits = False

    def application(self) -> web.Application:
        app = web.Application(middlewares=[_named_errors], client_max_size=2**30)
        add, api = app.router.add_route, r"/api/{kind:models|datasets}/{owner}/{name}"
        git = r"/{prefix:(datasets/)?}{owner:[^/]+}/{name:[^/]+}"
        add("GET", "/api/whoami-v2", self._whoami)
        add("POST", "/api/validate-yaml", self._validate_card)
        add("POST", "/api/repos/create", self._create)
        add("GET", api, self._info)
        add("GET", api + "/revision/{revision}", self._info)
        add("GET", api + "/tree/{revision}", self._tree)
        add("GET", api + "/tree/{revision}/{path:.*}", self._tree)
        add("POST", api + "/paths-info/{revision}", self._paths_info)
        add("GET", api + "/refs", self._refs)
        add("POST", api + "/branch/{branch}", self._create_branch)
        add("POST", api + "/preupload/{revision}", self._preupload)
        add("POST", api + "/commit/{revision}", self._commit)
        add("POST", git + ".git/info/lfs/objects/batch", self._lfs_batch)
        add("PUT", "/lfs/{sha}", self._lfs_put)
        add("POST", "/lfs/{sha}/verify", self._lfs_verify)
        app.router.add_get(git + "/resolve/{revision}/{path:.*}", self._file)  # HEAD as well
        add("GET", "/stand-in/repositories", self._show_repositories)
        add("POST", "/stand-in/corrupt/{path:.*}", self._set_corrupt)
        add("POST", "/stand-in/refuse-commits", self._refuse_commits)
        add("POST", "/stand-in/heal", self._heal)
        return app

    # --- who asks, and for what

    def _authorised(self, request: web.Request) -> bool:
        return request.headers.get("Authorization") == f"Bearer {self.token}"

    def _must_be_authorised(self, request: web.Request) -> None:
        if not self._authorised(request):
            raise web.HTTPUnauthorized(headers={"X-Error-Message": "Invalid username or password."})

    def _repository(self, request: web.Request, *, write: bool = False) -> Repository:
        kind = request.match_info.get("kind") or ("datasets" if request.match_info["prefix"] else "models")
        found = self.repositories.get((kind, f"{request.match_info['owner']}/{request.match_info['name']}"))
        if write:
            self._must_be_authorised(request)
        if found is None or (found.private and not self._authorised(request)):
            status = web.HTTPNotFound if self._authorised(request) else web.HTTPUnauthorized
            raise status(headers={"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"})
        return found

    def _at(self, request: web.Request) -> tuple[Repository, str]:
        repository = self._repository(request)
        oid = repository.resolve(request.match_info.get("revision", "main"))
        if oid is None:
            raise web.HTTPNotFound(headers={"X-Error-Code": "RevisionNotFound", "X-Error-Message": "Invalid rev id"})
        return repository, oid

    async def _whoami(self, request: web.Request) -> web.Response:
        self._must_be_authorised(request)
        return web.json_response({"type": "user", "name": "me", "orgs": [], "auth": {"type": "access_token"}})

    # --- repositories

    async def _create(self, request: web.Request) -> web.Response:
        self._must_be_authorised(request)
        asked = await request.json()
        name = f"{asked.get('organization') or 'me'}/{asked['name']}"
        kind = f"{asked.get('type') or 'model'}s"
        url = {"url": f"{request.scheme}://{request.host}/{'datasets/' * (kind == 'datasets')}{name}", "name": name}
        if (kind, name) in self.repositories:
            return web.json_response(url, status=409)
        # The client of 2.4 says `visibility`; older ones `private`.
        self.repositories[kind, name] = repository = Repository(asked.get("visibility") == "private" or bool(asked.get("private")))
        repository.commit("main", {})
        return web.json_response(url)

    async def _validate_card(self, request: web.Request) -> web.Response:
        return web.json_response({"errors": [], "warnings": []})

    async def _info(self, request: web.Request) -> web.Response:
        repository, oid = self._at(request)
        name = f"{request.match_info['owner']}/{request.match_info['name']}"
        siblings = [{"rfilename": path} for path in sorted(repository.commits[oid])]
        values = {"id": name, "sha": oid, "private": repository.private, "siblings": siblings, "tags": [], "downloads": 0, "likes": 0}
        return web.json_response(values | {"gated": False, "disabled": False, "lastModified": "2026-01-01T00:00:00.000Z"})

    async def _refs(self, request: web.Request) -> web.Response:
        branches = self._repository(request).revisions.items()
        listed = [{"name": name, "ref": f"refs/heads/{name}", "targetCommit": oid} for name, oid in branches]
        return web.json_response({"branches": listed, "converts": [], "tags": []})

    async def _create_branch(self, request: web.Request) -> web.Response:
        repository, branch = self._repository(request, write=True), request.match_info["branch"]
        if branch in repository.revisions:
            return web.json_response({"error": "Reference already exists"}, status=409)
        body = await request.json() if request.can_read_body else {}
        start = repository.resolve(body.get("startingPoint", "main")) or repository.revisions["main"]
        repository.revisions[branch] = start
        return web.json_response({})

    # --- what is in them

    def _entry(self, path: str, sha: str) -> dict[str, Any]:
        size = len(self.blobs[sha])
        return {"type": "file", "path": path, "size": size, "oid": sha[:40]} | (
            {"lfs": {"oid": sha, "size": size, "pointerSize": 134}} if _is_large(path, size) else {}
        )

    async def _tree(self, request: web.Request) -> web.Response:
        repository, oid = self._at(request)
        folder = f"{path.rstrip('/')}/" if (path := request.match_info.get("path", "")) else ""
        files = {path: sha for path, sha in repository.commits[oid].items() if path.startswith(folder)}
        folders = {str(parent) for path in files for parent in PurePosixPath(path).parents}
        if folder and not files:
            raise web.HTTPNotFound
        listed = [{"type": "directory", "path": name, "oid": oid, "size": 0} for name in sorted(folders - {"."}) if name.startswith(folder)]
        listed += [self._entry(path, sha) for path, sha in sorted(files.items())]
        if request.query.get("recursive", "").lower() != "true":
            listed = [entry for entry in listed if "/" not in entry["path"].removeprefix(folder)]
        return web.json_response(listed)

    async def _paths_info(self, request: web.Request) -> web.Response:
        repository, oid = self._at(request)
        form = await request.post() if request.content_type != "application/json" else None
        paths = form.getall("paths", []) if form is not None else (await request.json())["paths"]
        files = repository.commits[oid]
        found = [self._entry(path, files[path]) for path in paths if path in files]
        folders = [{"type": "directory", "path": p, "oid": oid} for p in paths if any(f.startswith(f"{p}/") for f in files)]
        return web.json_response(found + folders)

    async def _file(self, request: web.Request) -> web.StreamResponse:
        repository, oid = self._at(request)
        path = request.match_info["path"]
        sha = repository.commits[oid].get(path)
        if sha is None:
            raise web.HTTPNotFound(headers={"X-Error-Code": "EntryNotFound", "X-Repo-Commit": oid})
        content = self.blobs[sha]
        headers = {"X-Repo-Commit": oid, "ETag": f'"{sha}"', "Accept-Ranges": "bytes"}
        if _is_large(path, len(content)):
            headers |= {"X-Linked-Size": str(len(content)), "X-Linked-ETag": f'"{sha}"'}
        if path in self.corrupt:
            content = content[:-1] + bytes([content[-1] ^ 1])
        asked = request.http_range if request.headers.get("Range") else slice(None)
        part = content[asked]
        if len(part) < len(content):
            start = range(len(content))[asked].start
            headers["Content-Range"] = f"bytes {start}-{start + len(part) - 1}/{len(content)}"
        return web.Response(body=part, headers=headers, status=206 if len(part) < len(content) else 200)

    # --- uploads

    async def _preupload(self, request: web.Request) -> web.Response:
        self._repository(request, write=True)
        files = (await request.json())["files"]
        modes = [{"path": f["path"], "uploadMode": "lfs" if _is_large(f["path"], f["size"]) else "regular"} for f in files]
        return web.json_response({"files": [mode | {"shouldIgnore": False} for mode in modes]})

    async def _lfs_batch(self, request: web.Request) -> web.Response:
        self._repository(request, write=True)
        address = f"{request.scheme}://{request.host}/lfs"
        objects = []
        for asked in (await request.json())["objects"]:
            href = f"{address}/{asked['oid']}"
            known = asked["oid"] in self.blobs
            objects.append(asked | ({} if known else {"actions": {"upload": {"href": href}, "verify": {"href": f"{href}/verify"}}}))
        return web.json_response({"transfer": "basic", "objects": objects}, content_type="application/vnd.git-lfs+json")

    async def _lfs_put(self, request: web.Request) -> web.Response:
        content = await request.read()
        if hashlib.sha256(content).hexdigest() != request.match_info["sha"]:
            raise web.HTTPBadRequest
        self.blobs[request.match_info["sha"]] = content
        return web.Response()

    async def _lfs_verify(self, request: web.Request) -> web.Response:
        asked = await request.json()
        ok = len(self.blobs.get(asked["oid"], b"")) == asked["size"]
        return web.Response(status=200 if ok else 404)

    async def _commit(self, request: web.Request) -> web.Response:
        repository, branch = self._repository(request, write=True), request.match_info["revision"]
        if self.refuses_commits:
            raise web.HTTPForbidden(headers={"X-Error-Message": "This hub takes no commits at present."})
        if branch not in repository.revisions:
            raise web.HTTPNotFound(headers={"X-Error-Code": "RevisionNotFound", "X-Error-Message": f"Invalid rev id: {branch}"})
        files = dict(repository.commits[repository.revisions[branch]])
        for line in (await request.text()).splitlines():
            operation = json.loads(line)
            key, value = operation["key"], operation["value"]
            if key == "header" and value.get("parentCommit") not in (None, repository.revisions[branch]):
                return web.json_response({"error": "A commit has happened since."}, status=412)
            if key == "file":
                content = base64.b64decode(value["content"])
                sha = hashlib.sha256(content).hexdigest()
                self.blobs[sha] = content
                files[value["path"]] = sha
            elif key == "lfsFile":
                files[value["path"]] = value["oid"]
            elif key == "deletedFile":
                files.pop(value["path"], None)
            elif key == "deletedFolder":
                files = {path: sha for path, sha in files.items() if not path.startswith(value["path"].rstrip("/") + "/")}
        oid = repository.commit(branch, files)
        url = f"{request.scheme}://{request.host}/{request.match_info['owner']}/{request.match_info['name']}/commit/{oid}"
        return web.json_response({"success": True, "commitOid": oid, "commitUrl": url, "hookOutput": ""})

    # --- for tests

    async def _show_repositories(self, request: web.Request) -> web.Response:
        shown = {}
        for (kind, name), repository in self.repositories.items():
            branches = {branch: sorted(repository.commits[oid]) for branch, oid in repository.revisions.items()}
            shown[f"{kind}/{name}"] = {"private": repository.private, "branches": branches}
        return web.json_response(shown)

    async def _set_corrupt(self, request: web.Request) -> web.Response:
        self.corrupt.add(request.match_info["path"])
        return web.Response()

    async def _refuse_commits(self, request: web.Request) -> web.Response:
        self.refuses_commits = True
        return web.Response()

    async def _heal(self, request: web.Request) -> web.Response:
        self.corrupt.clear()
        self.refuses_commits = False
        return web.Response()


@web.middleware
async def _named_errors(request: web.Request, handler: Any) -> web.StreamResponse:
    """The client tells what is missing by a header."""
    try:
        return await handler(request)
    except web.HTTPNotFound as missing:
        missing.headers.setdefault("X-Error-Code", "EntryNotFound")
        raise


def _is_large(path: str, size: int) -> bool:
    return path.endswith((".safetensors", ".parquet", ".bin")) or size > 10_000_000


if __name__ == "__main__":
    web.run_app(HubStandIn(sys.argv[2]).application(), host="127.0.0.1", port=int(sys.argv[1]), print=lambda *_: None)
