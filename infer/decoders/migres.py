"""MIGRES: extract what the passages say, find out what is missing, ask for that (Sec. 3, Fig. 1; prompts of Tables 15 and 17).

Not taken over from the authors' code, because the paper does not have them: kinship definitions as known information, and the vote
over several samples.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from infer.ask import ask_json, note_fault
from infer.condense import condense
from infer.knowledge_filter import KnowledgeFilter
from infer.reasoning import UNKNOWN
from infer.scorers import LexicalScorer, PromptedEntailment
from infer.tools import Tools
from infer.trace import Prediction
from refinery.llms.json_reply import reads_as_refusal
from refinery.metrics.squad import normalize_answer
from refinery.prompts.render import render_prompt
from refinery.recipe import Recipe
from refinery.records import Passage, Question
from refinery.retrievers.base import Hit

T = TypeVar("T", bound=BaseModel)

NEEDS_RETRIEVER = True
MOST_QUERIES = 3  # Sec. 3.2: "no more than three new distinct sub-queries"


class Options(Recipe):
    """Table 11's hyper-parameters, the models of the filters, and the ablations. Table 11 retrieves `passages_per_query: 50`."""

    max_iterations: int = Field(
        5, description="T (Table 11: 5, open-domain 3); the first search counts, as in Table 17, which the authors' code does not do", ge=1
    )
    passages_in_prompt: int = Field(5, description="k (Table 11)", ge=1)
    reranker: Literal["lexical", "none"] = Field("lexical", description="BM25 in place of the paper's bge-reranker-base, or no filter")
    relevance_threshold: float = Field(
        4.0,
        description="delta, on the reranker's scale. Table 11's 3.0, 5.0 and 0.0 are bge-reranker-base's; ours is chosen by its rule, that"
        " over 80% of training questions keep a passage: 88% of the sample's do, of 50 retrieved",
    )
    entailment: Literal["none", "llm"] = Field("none", description="who checks that a cited passage entails the information")
    uses_per_passage: int = Field(2, description="a passage is read this often at most; the number is the authors' code's", ge=1)
    yes_no: bool = Field(False, description="StrategyQA: the answer is yes or no (caption of Table 17)")
    max_reply_tokens: int = Field(500, description="of each reply; the paper names no limit", ge=1)
    compression: Literal["sentences", "summ", "snippet", "none"] = Field(
        "sentences", description="irrelevant sentences go; or the LLM sums a passage up or quotes from it; or it stays whole (Table 5)"
    )
    examples: Literal["zero", "few"] = Field("zero", description="few: two demonstrations in each module's prompt (MIGRES* in Table 3)")
    no_knowledge_prompting: bool = Field(False, description="ablation: the LLM's own knowledge is never asked for (Table 6)")


class Information(BaseModel):
    """One statement of the Leaf Module, with the numbers of the passages that it cites."""

    info: str
    support_passages: list[int] = []


class LeafReply(BaseModel):
    """What the Leaf Module replies."""

    useful_information: list[Information]


class MainReply(BaseModel):
    """What the Main Module replies."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    answer: str
    explanation: str | None = None
    missing_information: str | None = None

    @property
    def solved(self) -> bool:
        """Whether there is an answer in it."""
        return normalize_answer(self.answer) not in ("", "unanswerable")


class QueriesReply(BaseModel):
    """What the Query Generator replies."""

    queries: list[str]


@dataclass(slots=True)
class Memory:
    """The Memory Module: what was asked, what was read and how often, and what is known."""

    queries: list[str]
    uses: Counter[str] = field(default_factory=Counter)
    information: list[str] = field(default_factory=list)


async def decode(question: Question, tools: Tools, options: Options) -> Prediction:
    """Retrieve, extract, solve, and ask for what is missing, until the question is answered or T is reached (Sec. 3.1)."""
    modules = Modules(question.text, tools, options, Memory([question.text]))
    queries = [question.text]
    for _ in range(options.max_iterations - 1):
        await modules.leaf(*await modules.retrieval(queries))
        reply = await modules.main()
        if reply is not None and reply.solved:
            return tools.prediction(reply.answer)
        queries = await modules.query_generator((reply and reply.missing_information) or question.text)
        modules.iteration += 1
    await modules.leaf(*await modules.retrieval(queries))
    reply = await modules.main(last=True)
    return tools.prediction(reply.answer if reply is not None and reply.solved else UNKNOWN)


@dataclass(slots=True)
class Modules:
    """The modules of Fig. 1 at work on one question; `iteration` counts from 0 and is the depth of the trace's steps."""

    question: str
    tools: Tools
    options: Options
    memory: Memory
    iteration: int = 0

    async def main(self, *, last: bool = False) -> MainReply | None:
        """Main Module: the answer from the information alone, or what is missing; on the last turn an answer in any case."""
        prompt = render_prompt(
            "migres_main",
            question=self.question,
            information=self.memory.information,
            last=last,
            yes_no=self.options.yes_no,
            examples=self.options.examples,
        )
        return await self._ask("main", prompt, MainReply, self.question)

    async def query_generator(self, missing: str) -> list[str]:
        """Retrieval Module: at most three queries for what is missing, none of which was asked before; else the question again."""
        memory = self.memory
        prompt = render_prompt(
            "migres_queries",
            question=self.question,
            asked=memory.queries,
            information=memory.information,
            missing=missing,
            examples=self.options.examples,
        )
        reply = await self._ask("queries", prompt, QueriesReply, self.question)
        asked = {normalize_answer(query) for query in memory.queries}
        new = {normalize_answer(query): query.strip() for query in (reply.queries if reply else []) if query.strip()}
        queries = [query for key, query in new.items() if key not in asked][:MOST_QUERIES]
        if reply is not None and not queries:
            note_fault(self.tools, self.question, "repeated", f"queries: {reply.queries}", depth=self.iteration)
        memory.queries += queries
        return queries or [self.question]

    async def retrieval(self, queries: Sequence[str]) -> tuple[list[str], list[Passage]]:
        """Retrieval Module: the best passages that the filter leaves, and the queries that they are for.

        Of a passage that several queries find, the best score counts. Where nothing is left the LLM says what it knows.
        """
        found = await asyncio.gather(*(self._search(query) for query in queries))
        best: dict[str, Hit] = {}
        for hit in (hit for hits in found for hit in hits):
            if hit.passage.id not in best or hit.retrieval_score > best[hit.passage.id].retrieval_score:
                best[hit.passage.id] = hit
        hits = sorted(best.values(), key=lambda hit: -hit.retrieval_score)[: self.options.passages_in_prompt]
        self.tools.note("filter", " ".join(queries), depth=self.iteration, passages=hits)
        if not hits:
            return list(queries), await self._own_knowledge(queries)
        chosen = {hit.passage.id for hit in hits}
        self.memory.uses.update(chosen)
        answered = [query for query, of_query in zip(queries, found, strict=True) if any(hit.passage.id in chosen for hit in of_query)]
        return answered, await self._condensed(answered, [hit.passage for hit in hits])

    async def _condensed(self, queries: Sequence[str], passages: list[Passage]) -> list[Passage]:
        """The passages as the LLM shortens them, where it is asked to; what it calls irrelevant is left out."""
        options, style = self.options, self.options.compression
        if style != "summ" and style != "snippet":
            return passages
        shorter = await condense(
            style, " ".join(queries), passages, self.tools, depth=self.iteration, max_new_tokens=options.max_reply_tokens
        )
        return [passage for passage in shorter if passage.text]

    async def leaf(self, queries: Sequence[str], passages: Sequence[Passage]) -> None:
        """Leaf Module: useful information with the passages that it cites; what none of them entails is left out."""
        if not passages:
            return
        question = " ".join(queries)
        prompt = render_prompt("migres_leaf", question=question, passages=passages, examples=self.options.examples)
        reply = await self._ask("leaf", prompt, LeafReply, question)
        for item in reply.useful_information if reply else []:
            cited = [passages[number - 1] for number in item.support_passages if 0 < number <= len(passages)]
            if not cited:
                note_fault(self.tools, question, "uncited", f"leaf: {item.info!r} cites {item.support_passages}", depth=self.iteration)
            elif item.info not in self.memory.information and await self._entailed(item.info, cited):
                self.memory.information.append(item.info)

    async def _search(self, query: str) -> list[Hit]:
        """What one query finds, through the filter, less the passages that were read often enough."""
        options = self.options
        reranker = LexicalScorer() if options.reranker == "lexical" else None
        knowledge_filter = KnowledgeFilter(reranker, options.relevance_threshold, sentence_level=options.compression == "sentences")
        hits = await knowledge_filter.keep(query, await self.tools.search(query, depth=self.iteration))
        return [hit for hit in hits if self.memory.uses[hit.passage.id] < options.uses_per_passage]

    async def _own_knowledge(self, queries: Sequence[str]) -> list[Passage]:
        """LLM knowledge prompting, as the one passage there is; a model that knows nothing gives none."""
        if self.options.no_knowledge_prompting:
            return []
        question = " ".join(queries)
        context = self.tools.context(render_prompt("migres_knowledge", question=question))
        text = (await context.generate(max_new_tokens=self.options.max_reply_tokens)).text
        self.tools.note("own_knowledge", question, depth=self.iteration, text=text)
        says_nothing = normalize_answer(text) in ("", "none") or reads_as_refusal(text)
        return [] if says_nothing else [Passage(id="own knowledge", text=text)]

    async def _entailed(self, information: str, cited: Sequence[Passage]) -> bool:
        """Whether one of the cited passages entails the information (Sec. 3.2)."""
        if self.options.entailment == "none":
            return True
        judge = PromptedEntailment(self.tools, depth=self.iteration, max_new_tokens=self.options.max_reply_tokens)
        entails = max(await judge.score(information, [f"{passage.title} {passage.text}" for passage in cited])) > 0
        if not entails:
            self.tools.note("not_entailed", information, depth=self.iteration)
        return entails

    async def _ask(self, name: str, prompt: str, schema: type[T], question: str) -> T | None:
        return await ask_json(
            name, prompt, schema, question, self.tools, depth=self.iteration, max_new_tokens=self.options.max_reply_tokens
        )
