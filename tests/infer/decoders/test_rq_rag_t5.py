"""RQ-RAG's generator as an encoder-decoder: it is decoded in the very form that it was trained in."""

import asyncio

import pytest
import torch
from helpers.family_rows import ROWS, recipe_values

from infer.decoders.rq_rag import Options, decode
from infer.pipeline import Pipeline
from infer.recipe import PipelineRecipe
from infer.session import Session
from refinery.contract.formats import action_segment
from refinery.contract.records import Question, write_records
from refinery.contract.segments import Segment
from refinery.errors import RecipeError
from refinery.llms.engine.seq2seq import Seq2SeqLLM
from refinery.retrievers.fake import FakeRetriever
from train.families.seq2seq import build_model, encode_rows
from train.recipe import TrainRecipe

TRAJECTORY = ROWS["refinement"][0]


class Rehearsal:
    """Makes a T5 write what its training rows say, for as long as it is given what they were given; `passes` is what it was given."""

    def __init__(self, model, rows):
        self.start, self.passes = model.config.decoder_start_token_id, []
        self._targets = {tuple(row.input_ids): row.labels for row in rows}
        model.get_encoder().register_forward_pre_hook(self._read, with_kwargs=True)
        model.register_forward_hook(self._write, with_kwargs=True)

    def _read(self, module, arguments, given):
        pairs = zip(given["input_ids"], given["attention_mask"], strict=True)
        self.read, self.written = [tuple(ids[mask.bool()].tolist()) for ids, mask in pairs], None

    def _write(self, module, arguments, given, output):
        fed = given["decoder_input_ids"].tolist()
        self.written = fed if self.written is None else [old + new for old, new in zip(self.written, fed, strict=True)]
        for row, (read, written) in enumerate(zip(self.read, self.written, strict=True)):
            self.passes.append((read, tuple(written)))
            target = self._targets.get(read, [])
            if len(written) <= len(target) and written == [self.start, *target[: len(written) - 1]]:
                output.logits[row, -1, target[len(written) - 1]] = 1e4


def generator(tiny_t5s, folder):
    """A T5 that has the control tokens, its tokenizer, and the rows that it would be trained on."""
    values = recipe_values(folder, task="refinement", base=tiny_t5s["tied"], family="seq2seq", max_length=512, strategy="full")
    recipe = TrainRecipe.model_validate(values)
    model, tokenizer = build_model(recipe)
    return model, tokenizer, encode_rows([TRAJECTORY], recipe, tokenizer)[0]


def test_every_pass_of_the_decoder_is_the_beginning_of_a_training_row(tiny_t5s, tmp_path):
    model, tokenizer, rows = generator(tiny_t5s, tmp_path)
    rehearsal = Rehearsal(model, rows)
    question = Question(id="q", text=TRAJECTORY.question)
    session = Session(
        question=question,
        llm=Seq2SeqLLM(model, tokenizer),
        retriever=FakeRetriever(lambda query: TRAJECTORY.steps[0].passages),
        passages_per_query=2,
        max_new_tokens=40,
    )
    prediction = asyncio.run(decode(question, session, Options(adaptive=True, max_depth=1)))
    trained = {(tuple(row.input_ids), (rehearsal.start, *row.labels[:fed])) for row in rows for fed in range(len(row.labels))}
    assert set(rehearsal.passes) <= trained
    assert [step.action for step in prediction.paths[0].steps] == ["rewrite", "answer"]
    assert prediction.answer == "Maria Dune"


def test_a_step_that_is_being_written_is_the_decoders_whatever_is_asked_of_it(tiny_t5s, tmp_path):
    model, tokenizer, rows = generator(tiny_t5s, tmp_path)
    llm, row = Seq2SeqLLM(model, tokenizer), rows[0]
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([row.input_ids]), labels=torch.tensor([row.labels])).logits[0].float()
    plain = torch.log_softmax(logits, dim=-1)[range(len(row.labels)), row.labels].tolist()

    async def ask():
        opened = llm.context([Segment("", "prompt", token_ids=tuple(row.input_ids[:-1]))]).extend([action_segment("rewrite")])
        rest = Segment("", "query", token_ids=tuple(row.labels[1:]))
        return await opened.score([rest]), await opened.label_probs([" director", " Lyon"])

    scores, chosen = asyncio.run(ask())
    assert scores == pytest.approx(plain[1:], abs=1e-4)
    firsts = [llm.context(label).token_ids[0] for label in chosen]
    assert list(chosen.values()) == pytest.approx(torch.softmax(logits[1][firsts], dim=-1).tolist(), abs=1e-4)


def test_definitions_that_score_the_prompt_are_refused_for_a_model_that_only_reads_it(tiny_t5s, tmp_path):
    write_records(tmp_path / "passages.jsonl", TRAJECTORY.steps[0].passages)
    recipe = PipelineRecipe.model_validate(
        {
            "decoder": "rq_rag",
            "llm": {"base": str(tiny_t5s["tied"])},
            "retriever": {"passages": tmp_path / "passages.jsonl"},
            "options": {"fidelity": "official"},
        }
    )
    with pytest.raises(RecipeError, match="fidelity: official scores the prompt and the evidence"):
        Pipeline(recipe).load()
