"""What would stop a project after its labels are paid for, looked for before its first step: bases that cannot be had, and servers that
do not answer or refuse their key.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from refinery.errors import CheckpointError, RecipeError
from refinery.llms.weights.hub_files import read_small_json
from refinery.project.jobs import Job

_SECONDS = 10.0
_OPENAI_KEY = "OPENAI_API_KEY"


def check_ready(jobs: Sequence[Job], made: Sequence[Path], *, where: str) -> None:
    """Raise RecipeError, a line for each fault, unless the jobs' bases can be had and their servers answer.

    `made` are the outputs of the project's steps, which need not be there yet. Of a server, only its list of models is asked for; one
    that has no such list is taken to be ready.
    """
    parts = [part for job in jobs if job.stage for part in _parts(job.values)]
    bases = dict.fromkeys(str(part["base"]) for part in parts if isinstance(part.get("base"), str))
    servers = dict.fromkeys(server for part in parts for server in _servers(part))
    faults = [fault for base in bases if not _is_made(Path(base), made) and (fault := _fault_of_base(base))]
    faults += [fault for url, variable in servers if (fault := _fault_of_server(url, variable))]
    if faults:
        raise RecipeError("\n".join(f"{where}: {fault}" for fault in faults))


def _parts(value: Any) -> Iterator[Mapping[str, Any]]:
    """Every mapping in a recipe, at any depth."""
    if isinstance(value, Mapping):
        part = cast("Mapping[str, Any]", value)
        yield part
        for inner in part.values():
            yield from _parts(inner)
    elif isinstance(value, list | tuple):
        for inner in cast("Sequence[Any]", value):
            yield from _parts(inner)


def _servers(part: Mapping[str, Any]) -> Iterator[tuple[str | None, str]]:
    """(address, variable of its key) of each server that a part names, where None is OpenAI's; those of other protocols are not asked."""
    if "model" not in part or part.get("protocol", "openai_chat") != "openai_chat":
        return
    urls = part.get("base_url")
    for url in urls if isinstance(urls, list) else [urls]:
        if url is not None or "api_key_env" in part:
            yield cast("str | None", url), str(part.get("api_key_env") or _OPENAI_KEY)


def _is_made(base: Path, made: Sequence[Path]) -> bool:
    return any(base == output or output in base.parents for output in made)


def _fault_of_base(base: str) -> str | None:
    try:
        if any(read_small_json(base, name) is not None for name in ("config.json", "adapter_config.json")):
            return None
    except CheckpointError as error:
        return str(error)
    return f"{base}: holds no config.json, so it is not a model. Name a folder that a model was saved to, or a name on the hub."


def _fault_of_server(url: str | None, variable: str) -> str | None:
    from openai import APIConnectionError, AuthenticationError, OpenAI, OpenAIError, PermissionDeniedError

    key = os.environ.get(variable)
    if url is None and not key:
        return f"OpenAI needs a key: export it as {variable}, or name a server with base_url."
    try:
        OpenAI(base_url=url, api_key=key or "none", timeout=_SECONDS, max_retries=1).models.list()
    except APIConnectionError as error:
        return f"{url or 'OpenAI'}: does not answer ({error}). Start the server, or correct base_url."
    except (AuthenticationError, PermissionDeniedError) as error:
        refused = f"{url or 'OpenAI'}: refuses the key in {variable} (status {error.status_code})."
        return f"{refused} Export another, or name its variable in api_key_env."
    except OpenAIError:  # a server without a list of models
        return None
    return None
