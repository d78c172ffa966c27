"""Hashes that lie in stores, indexes and records. A changed one would have replies paid again, indexes rebuilt and runs not resumed."""

from distill.steps.refinement.trajectory_checks import keeps_original
from distill.teacher.teacher import Teacher
from refinery.contract.records import Passage
from refinery.llms.served.chat_llm import GenerationRequest, LabelRequest
from refinery.llms.served.endpoint import EndpointConfig
from refinery.passages.corpus import corpus_hash, write_corpus
from refinery.retrievers.index.manifest import sampled_checksum
from refinery.retrievers.search.cache import search_key
from refinery.runtime.files.fingerprint import checksum, file_fingerprint, id_number, text_fingerprint
from refinery.runtime.recipe import Recipe, recipe_hash
from refinery.stores.base import effect_key

PASSAGES = [Passage(id="1", title="Lyon", text="É."), Passage(id="2", title="Oslo", text="A city.")]
CHAT = (("user", "Who \ud800 é?"), ("assistant", "Me."))


class ExampleRecipe(Recipe):
    base: str = "some/base"
    lr: float = 0.5


def test_a_teachers_request_has_its_key():
    teacher = Teacher(EndpointConfig(base_url="http://127.0.0.1:1/v1", model="m"), None, None, None)
    assert teacher.request(CHAT, None, 2).key.hex() == "5a351933b197ee8c63346d9b70319451"
    assert effect_key("reply", "by name", "m", 0.5, None).hex() == "faadf5e85911a6864d643477c64fd478"


def test_a_stored_value_has_its_checksum():
    assert checksum(b"keyvalue").hex() == "ee1dcad03175bc3a"


def test_a_chat_has_its_key():
    assert GenerationRequest.of((("user", "é"),), 9, 0.0, ("\n",)).key.hex() == "b9ce283470f889b58e30741970c2b936"
    assert LabelRequest.of((("user", "é"),), 9, 0.0, ()).key.hex() == "b4440b7e117555e5ef510d8c114206bd"


def test_a_search_has_its_key():
    assert search_key("rev", "é", 3).hex() == "a312b48960c497004c6d15528e44d4e3"


def test_a_corpus_has_its_hash(tmp_path):
    assert corpus_hash(PASSAGES) == write_corpus(PASSAGES, tmp_path, total=2).corpus_hash == "714e068f27cd82b4"


def test_files_and_texts_have_their_fingerprints(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(bytes(range(256)) * 20_000)
    assert file_fingerprint(file, file) == "44835426b73ce7f5"
    assert sampled_checksum(file) == "b5771058b41aa637"
    assert text_fingerprint(["é", "b"]) == "aa21eeee842520f4"


def test_a_recipe_has_its_hash():
    assert recipe_hash(ExampleRecipe()) == "24e0d0bb4a86"


def test_an_id_has_its_shard_and_its_draw():
    assert id_number("é") == 14635220546840893743
    assert [number for number in range(12) if keeps_original(f"q{number}", 0.3)] == [0, 4, 5, 7]
