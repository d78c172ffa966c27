"""Before the first step: every base that cannot be had and every server that does not answer, all at once."""

from pathlib import Path
from typing import Any

import pytest
from helpers.scripted_server import scripted

from refinery.errors import RecipeError
from refinery.project.jobs import Job
from refinery.project.preflight import check_ready
from refinery.runtime.recipes.shipped_files import DEMO_CHECKPOINT

NOBODY = "http://127.0.0.1:9/v1"
LISTING = (200, {"object": "list", "data": [{"id": "scripted", "object": "model"}]})


def job(values: dict[str, Any], *, stage: str = "infer") -> Job:
    return Job("a", stage, ("r.yaml",), (), {}, Path("runs/a"), frozenset(), values)


def test_what_is_there_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted(lambda prompt: "yes", listing=LISTING) as server:
        teacher = {"base_url": server.base_url, "model": "scripted", "api_key_env": "NO_KEY"}
        check_ready([job({"base": DEMO_CHECKPOINT}, stage="train"), job({"teacher": teacher})], [], where="p")
        assert server.bodies == []


def test_a_base_that_an_earlier_step_makes_need_not_be_there() -> None:
    needs = [job({"llm": {"base": "runs/models/x"}})]
    check_ready(needs, [Path("runs/models/x")], where="p")
    with pytest.raises(RecipeError, match="p: runs/models/x: "):
        check_ready(needs, [], where="p")


def test_every_fault_has_its_line(tmp_path: Path) -> None:
    values = {
        "llm": {"base": str(tmp_path)},
        "sub_models": {"judge": {"base": "nobody/absent"}},
        "teacher": {"base_url": NOBODY, "model": "m"},
    }
    with pytest.raises(RecipeError) as raised:
        check_ready([job(values)], [], where="p")
    lines = str(raised.value).splitlines()
    assert len(lines) == 3
    assert f"p: {tmp_path}: holds no config.json" in lines[0]
    assert lines[1].startswith("p: nobody/absent: ")
    assert lines[2].startswith(f"p: {NOBODY}: does not answer (")


def test_openai_without_a_key_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_KEY", raising=False)
    with pytest.raises(RecipeError, match="p: OpenAI needs a key: export it as MY_KEY"):
        check_ready([job({"teacher": {"model": "gpt", "api_key_env": "MY_KEY"}})], [], where="p")


def test_a_refused_key_is_named() -> None:
    with scripted(lambda prompt: "yes", listing=(401, {"error": {"message": "no"}})) as server:
        teacher = {"base_url": server.base_url, "model": "m", "api_key_env": "MY_KEY"}
        with pytest.raises(RecipeError, match=r"refuses the key in MY_KEY \(status 401\)"):
            check_ready([job({"teacher": teacher})], [], where="p")
