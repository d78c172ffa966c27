"""What a decoder declares, whether it ships with the project or comes from outside."""

import pytest

from infer.decoders.base import DECODERS, Decoder, find_decoder
from refinery.errors import PluginError
from refinery.runtime.recipe import Recipe


@pytest.mark.parametrize("name", DECODERS.shipped())
def test_every_file_of_the_folder_declares_a_decoder(name):
    assert issubclass(find_decoder(name).options, Recipe)


TERSE = """
from infer.decoders.base import Decoder
from infer.decoders.direct import Options, decode

DECODER = Decoder(decode, Options)
"""


@pytest.mark.parametrize("name", ["my_lab.terse", "my_lab.terse:DECODER"])
def test_a_decoder_from_outside_says_no_more_than_what_it_does(my_lab, name):
    my_lab("terse", TERSE)
    found = find_decoder(name)
    assert (found.needs_retriever, found.roles(found.options()), found.llm_needs(found.options())) == (False, {}, frozenset())


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("my_lab.wrong", r"wrong.py declares no DECODER \(a Decoder\)"),
        ("my_lab.wrong:decode", "is a function. It should be a Decoder"),
        ("my_lab.wrong:decoed", "has no 'decoed'. Did you mean 'decode'"),
    ],
)
def test_what_declares_no_decoder_is_told_what_is_missing(my_lab, name, fault):
    my_lab("wrong", "def decode(question): ...")
    with pytest.raises(PluginError, match=f"decoder '{name}': .*{fault}"):
        find_decoder(name)


@pytest.mark.parametrize(("parts", "named"), [((None, Recipe), "'decode' is None"), ((print, dict), "'options' is <class 'dict'>")])
def test_a_part_of_another_kind_is_named(parts, named):
    with pytest.raises(PluginError, match=f"^Decoder: {named}, and not "):
        Decoder(*parts)
