"""The recipes in the documents: every `teacher` is read as a recipe, and its protocol sends what it sets."""

import re

import pytest
import yaml
from helpers.documents import DOCUMENTS

from distill.teacher.config import TeacherConfig
from refinery.llms.served.protocols.base import check_protocol
from refinery.llms.served.transport.chat_request import ChatRequest
from refinery.runtime.recipe import build_recipe

BLOCKS = [
    (path.name, yaml.safe_load(block)["teacher"])
    for path in DOCUMENTS
    for block in re.findall(r"```yaml\n(.*?)```", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    if re.search("^teacher:", block, flags=re.MULTILINE)
]


@pytest.mark.parametrize(("name", "teacher"), BLOCKS, ids=[f"{name}-{teacher['model']}" for name, teacher in BLOCKS])
def test_a_teacher_is_read_and_sends_what_it_sets(name, teacher):
    config = build_recipe(teacher, TeacherConfig, where=name, part="teacher")
    check_protocol(config)
    assert ChatRequest(b"", (("user", "Where?"),)).body(config)["model"] == teacher["model"]
