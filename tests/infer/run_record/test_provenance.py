import pytest

from infer.recipe import InferRecipe
from infer.run_record.provenance import provenance, questions_hash
from refinery.contract.records import Passage, Question, write_records
from refinery.prompts.render import prompt_hash, render_prompt

QUESTIONS = [Question(id=str(number), text=f"Who is {number}?", answers=["Torvel"]) for number in range(3)]


@pytest.fixture
def noted(tmp_path):
    """The provenance of a recipe with `values`."""
    (tmp_path / "model").mkdir(exist_ok=True)
    (tmp_path / "model" / "model.safetensors").write_bytes(b"weights")
    write_records(tmp_path / "passages.jsonl", [Passage(id="p", text="Lyon")])

    def note(questions=QUESTIONS, **values):
        recipe = {"decoder": "rag", "questions": ["q.jsonl"], "output_dir": "run", "llm": {"base": str(tmp_path / "model")}}
        return provenance(InferRecipe.model_validate(recipe | values), questions, None)

    return note


def test_the_questions_hash_is_of_ids_texts_and_answers_in_any_order():
    assert questions_hash(QUESTIONS) == questions_hash(QUESTIONS[::-1])
    for change in ({"id": "9"}, {"text": "Who?"}, {"answers": ["Torvel", "M. Torvel"]}):
        assert questions_hash([QUESTIONS[0].model_copy(update=change), *QUESTIONS[1:]]) != questions_hash(QUESTIONS)
    assert questions_hash([QUESTIONS[0].model_copy(update={"type": "rare"}), *QUESTIONS[1:]]) == questions_hash(QUESTIONS)


def test_a_corpus_is_the_same_whatever_searches_it(noted, tmp_path):
    first, second = (noted(retriever={"name": name, "passages": tmp_path / "passages.jsonl"}) for name in ("bm25", "my_lab.dense:Dense"))
    assert first["corpus_hash"] == second["corpus_hash"] is not None
    assert (first["retriever"], second["retriever"]) == ("bm25", "my_lab.dense:Dense")
    write_records(tmp_path / "passages.jsonl", [Passage(id="p", text="Oslo")])
    assert noted(retriever={"passages": tmp_path / "passages.jsonl"})["corpus_hash"] != first["corpus_hash"]


def test_the_corpus_of_candidates_is_the_questions_own_passages(noted):
    with_passages = [QUESTIONS[0].model_copy(update={"passages": [Passage(id="p", text="Lyon")]})]
    hashes = [noted(questions, retriever={"name": "candidates"})["corpus_hash"] for questions in (QUESTIONS, with_passages)]
    assert len({*hashes, None}) == 3


def test_without_a_retriever_there_is_no_corpus(noted):
    note = noted()
    assert (note["retriever"], note["corpus_hash"], note["passages_per_query"]) == (None, None, None)


def test_a_model_folder_is_named_by_its_weights(noted, tmp_path):
    before = noted()["model"]
    (tmp_path / "model" / "model.safetensors").write_bytes(b"other weights")
    after = noted(llm={"base": str(tmp_path / "model"), "adapters": {"relevance": str(tmp_path / "model")}})["model"]
    assert before["name"] == after["name"]
    assert before["revision"] != after["revision"] == after["adapters"]["relevance"]["revision"]


def test_prompts_are_noted_by_their_hash(noted):
    render_prompt("answer_direct", question="Who?")
    assert noted()["prompts"]["answer_direct"] == prompt_hash("answer_direct")
