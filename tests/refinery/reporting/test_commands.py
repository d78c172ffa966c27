"""The command of a run is shown as it would be typed again."""

import pytest

from refinery.reporting.commands import typed_command


@pytest.mark.parametrize("program", ["/venv/bin/refinery distill", "/x/refinery/cli.py distill", "/x/distill/__main__.py"])
def test_every_way_to_start_a_stage_is_shown_as_the_command(program):
    assert typed_command([*program.split(), "r.yaml", "limit=2"]) == "refinery distill r.yaml limit=2"


def test_another_program_keeps_its_name():
    assert typed_command(["/x/y/study.py", "a b"]) == "study.py 'a b'"


def test_a_run_without_a_command_has_none():
    assert typed_command([]) == ""


def test_a_password_in_an_address_is_not_shown():
    assert typed_command(["refinery", "infer", "endpoint=http://me:secret@host/v1"]) == "refinery infer endpoint=http://host/v1"
