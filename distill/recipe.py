"""What a distillation recipe may say."""

from pathlib import Path

from pydantic import Field

from refinery.llms.build import ModelConfig
from refinery.llms.openai import EndpointConfig
from refinery.recipe import Recipe
from refinery.retrievers.base import RetrieverConfig


class DistillRecipe(Recipe):
    """One labelling task over a set of questions."""

    task: str = Field(description="a file of distill/tasks, or module:attribute")
    questions: list[Path] = Field(description="questions.jsonl files, or other datasets with `reader`", min_length=1)
    reader: str = Field("jsonl", description="a file of refinery/questions: the schema the questions are in")
    output_dir: Path
    teacher: EndpointConfig | None = Field(None, description="the endpoint that labels")
    target: ModelConfig | None = Field(None, description="the model whose own knowledge is judged (RA-ISF App. A.1)")
    retriever: RetrieverConfig | None = None
    passages_per_query: int = Field(5, description="RA-ISF retrieves 5 (Fig. 3), RQ-RAG 3 (Sec. 3.3)", ge=1)
    max_steps: int = Field(5, description="searches of one trajectory", ge=1)
    max_new_tokens: int = Field(32, description="tokens of a closed-book answer", ge=1)
    rows_in_flight: int = Field(256, description="rows worked on at once", ge=1)
    limit: int | None = Field(None, description="label only the first questions", ge=1)
    max_failure_share: float = Field(0.2, description="the run fails when more of its rows are rejected", ge=0, le=1)
