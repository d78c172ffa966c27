"""The decoder's whole tree of a question as rollouts: each path is compared with the others by the share that the selection gives it.

The objective is the reward that the selection expects if it draws a path by its share. A tree holds every path that there is to select,
so that the expectation is a sum, without the noise of sampling. Of what the ensemble's shares are made of, the actions are trained: a
tree opens every action, whatever its probability, so that the sum stays true. Queries and answers are given: the model writes its likeliest
ones, and where a wrong one is made less likely, another one takes its place, about which the sum says nothing.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from infer.decoders.rq_rag import Options
from infer.pipeline import Pipeline
from infer.steps.selection import path_shares
from refinery.contract.chat_template import end_ids
from refinery.contract.path_format import path_format
from refinery.contract.records import Question, Trajectory
from refinery.contract.segments import control_token_id, encode_segment
from refinery.contract.tokenizer import Tokenizer
from refinery.prompts.render import render_prompt
from train.rollout_settings import GrpoSettings
from train.rollouts.rollout import Rollout, Text

if TYPE_CHECKING:
    import torch


async def grown_tree(pipeline: Pipeline, question: Question) -> list[Rollout]:
    """The paths of the question's tree, in the decoder's order."""
    session, options = pipeline.session(question), pipeline.options
    prediction, tokenizer = await pipeline.decode(session, question), session.llm.tokenizer
    asked = prediction.paths[0].question
    prompt = session.context(path_format(tokenizer, options.format).prompt(asked, render_prompt(options.system_prompt))).token_ids
    shares = path_shares(prediction.paths)
    return [
        Rollout(
            question,
            [path_text(path, prompt, tokenizer, options)],
            answer=path.answer or "",
            searches=len(path.steps) - 1,
            queries=[step.text for step in path.steps[:-1]],
            failed=prediction.failed,
            share=share,
        )
        for path, share in zip(prediction.paths, shares, strict=True)
    ]


def path_text(path: Trajectory, prompt: Sequence[int], tokenizer: Tokenizer, options: Options) -> Text:
    """The tokens of a path as the decoder read and wrote them, after those of its prompt. Only its actions count as written."""
    form = path_format(tokenizer, options.format)
    text, ends = Text(), end_ids(tokenizer) | {control_token_id(end, tokenizer) for end in form.ends}
    text.read(prompt)
    for step in path.steps:
        (action, *written), (logprob, *_) = step.token_ids or [], step.logprobs or []
        text.wrote([action], [logprob])
        text.read(written)
        if step.action != "answer":
            unclosed = options.format != "official" and (step.token_ids or [])[-1] not in ends
            found = [*(form.closing() if unclosed else []), *form.evidence(step.passages)]
            text.read([token for segment in found for token in encode_segment(segment, tokenizer)])
    return text


def selection_advantages(advantages: "torch.Tensor", rollouts: Sequence[Rollout], settings: GrpoSettings) -> "torch.Tensor":
    """Turns advantages over the mean of a tree's paths, (rollouts,), into those over what the selection expects, times its shares.

    Equal shares leave them as they are. Scaled, they are divided by the deviation under the shares.
    """
    shares = advantages.new_tensor([one.share for one in rollouts]).reshape(-1, settings.num_generations)
    gains = advantages.reshape_as(shares)
    gains = gains - (shares * gains).sum(1, keepdim=True)
    if settings.scale_rewards == "group":
        gains = gains / ((shares * gains**2).sum(1, keepdim=True).sqrt() + 1e-4)
    return (settings.num_generations * shares * gains).flatten()
