"""What a decoder declares, whether it ships with the project or comes from outside."""

import pytest

from infer.decoders.base import Decoder, load_decoder
from refinery.errors import PluginError
from refinery.runtime import plugins
from refinery.runtime.recipe import Recipe


@pytest.mark.parametrize("name", plugins.available("infer.decoders"))
def test_every_file_of_the_folder_declares_a_decoder(name):
    assert issubclass(load_decoder(name).options, Recipe)


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """Write a module of the user's own."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, text: str) -> None:
        (tmp_path / f"{name}.py").write_text(text)

    return write


TERSE = """
from infer.decoders.base import Decoder
from infer.decoders.direct import Options, decode

mine = Decoder(decode, Options)
"""


def test_a_decoder_from_outside_says_no_more_than_what_it_does(outside):
    outside("terse_decoder", TERSE)
    found = load_decoder("terse_decoder:mine")
    assert (found.needs_retriever, found.roles(found.options()), found.llm_needs(found.options())) == (False, {}, frozenset())


def test_what_declares_no_decoder_is_told_how_to(outside):
    outside("function_decoder", "def decode(question): ...")
    message = "decoder 'function_decoder:decode': is of type function, and not a Decoder. Declare one: DECODER = "
    with pytest.raises(PluginError, match=message):
        load_decoder("function_decoder:decode")


@pytest.mark.parametrize(("parts", "named"), [((None, Recipe), "'decode' is None"), ((print, dict), "'options' is <class 'dict'>")])
def test_a_part_of_another_kind_is_named(parts, named):
    with pytest.raises(PluginError, match=f"^Decoder: {named}, and not "):
        Decoder(*parts)
