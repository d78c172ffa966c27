from collections import Counter
from pathlib import Path

import pytest

import refinery.prompts
from refinery.prompts.render import has_prompt, prompt_file, prompt_hash

FILES = sorted(Path(refinery.prompts.__file__).parent.rglob("*.jinja"))


def test_each_prompt_is_the_only_one_of_its_name():
    assert [name for name, count in Counter(file.name for file in FILES).items() if count > 1] == []


def test_each_prompt_is_found_by_its_bare_name():
    assert [prompt_file(file.stem) for file in FILES] == FILES


@pytest.mark.parametrize("name", ["nothing", "../render", "teacher/teacher_relevance", ""])
def test_what_is_in_no_folder_is_no_prompt(name):
    assert not has_prompt(name)


@pytest.mark.parametrize("folder", ["teacher", "student"])
def test_a_name_says_whom_the_prompt_is_for(folder):
    of_folder = {file.parent.name for file in FILES if file.name.startswith(f"{folder}_")}
    assert of_folder == {folder}


def test_a_hash_names_the_prompt_and_not_its_folder():
    assert prompt_hash("teacher_correction") == "5f0a1d14e506"
