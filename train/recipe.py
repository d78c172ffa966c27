"""What a training recipe may say. Names and meanings follow TRL's SFTConfig where it has them."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from refinery.formats import FormatName
from refinery.recipe import Recipe

TaskName = Literal["self_knowledge", "relevance", "decomposition", "refinement"]


class TrainRecipe(Recipe):
    """Fine-tune one causal model on the rows of one task."""

    task: TaskName = Field(description="which records the data holds, and how they become rows")
    base: str = Field(description="hub name or folder of the causal model to start from")
    data: list[Path] = Field(min_length=1, description="files that distill wrote")
    validation: list[Path] = Field(default=[], description="held-out files of the same kind, for metrics after training")
    output_dir: Path
    strategy: Literal["lora", "full"] = "lora"
    lora_rank: int = Field(8, description="RA-ISF trains 8, RQ-RAG's script 64", ge=1)
    lora_alpha: int = Field(16, description="both papers' scripts use 16", ge=1)
    lora_dropout: float = Field(0.05, description="RA-ISF's LoRA script uses 0.05", ge=0, lt=1)
    format: FormatName = Field("consistent", description="how trajectories are written (refinement only)")
    system_prompt: str = Field("rq_rag_short_answer", description="a file of refinery/prompts, for rows that bring none (refinement only)")
    label_balance: bool = Field(False, description="repeat rows of the rarer label until both are equally frequent")
    epochs: float = Field(3, description="RA-ISF trains 3, RQ-RAG 1", gt=0)
    learning_rate: float = Field(description="RQ-RAG full: 2e-5; RA-ISF full: 2e-5, LoRA: 1e-4", gt=0)
    lr_scheduler_type: Literal["linear", "cosine", "constant"] = "cosine"
    warmup_steps: float = Field(0.03, description="below 1 it is a share of all steps; both papers use 0.03", ge=0)
    weight_decay: float = Field(0.0, ge=0)
    train_sampling_strategy: Literal["random", "group_by_length"] = Field(
        "random", description="group_by_length pads less, but then a batch holds questions of one kind"
    )
    per_device_train_batch_size: int = Field(4, ge=1)
    gradient_accumulation_steps: int = Field(8, ge=1)
    max_length: int = Field(4096, description="longer rows are dropped and counted; RQ-RAG trains 4,096", ge=8)
    max_steps: int = Field(-1, description="stop after so many steps; -1 trains all epochs")
    dtype: Literal["float32", "bfloat16"] = Field("bfloat16", description="weights are loaded so, and training runs in it")
    gradient_checkpointing: bool = True
    attn_implementation: str = Field("sdpa", description="as transformers names them")
    save_steps: int = Field(200, description="steps between checkpoints that --resume can go on from; the newest is kept", ge=1)
    limit: int | None = Field(None, description="train on the first rows only", ge=1)
    seed: int = 42
