#!/usr/bin/env bash
# A project of documents with a real model as teacher and as base: `refinery new`, `run` and `serve`, and one follow-up question over HTTP.
# The study's model writes questions and labels, is trained on them, and answers. It is small, so few of its questions are kept and the
# scores say nothing; what counts is that every step comes to its end, or says in one line why not.
#   recipes/real/project.sh            (DOCUMENTS=40; DTYPE=bfloat16 where the processor computes in it)
# Hardware: 2 CPU cores, 8 GiB of memory. Interrupted, the same command goes on; replies are kept, and none is asked for twice.
set -euo pipefail
cd "$(dirname "$0")/../.."

OUTPUT=runs/real/project
PROJECT=$OUTPUT/wikipedia
source recipes/real/base_server.sh
serve_base $OUTPUT

if [ ! -e $PROJECT ]; then
    python recipes/real/documents.py --count "${DOCUMENTS:-40}" --output $OUTPUT/documents
    refinery new $PROJECT --documents $OUTPUT/documents --teacher "$TEACHER" --model $BASE --base $BASE
    # Small enough for two cores: short replies, two at a time; half of the documents for tests; few and short steps of training.
    sed -i 's/max_tokens: 1000.*/max_tokens: 128\n    calls_in_flight: 2\n    timeout_seconds: 600\n    deadline_seconds: 3600/' $PROJECT/refinery.yaml
    sed -i 's/split: .*/split: {validation: 0.2, test: 0.4}/' $PROJECT/recipes/questions.yaml
    # The model keeps to the form of a reply after examples of it: eight questions about paragraphs of training rows.
    cp recipes/real/data/question_examples.jsonl $PROJECT/
    sed -i 's/max_failure_share: 0.98/examples: {rows: question_examples.jsonl, count: 2}\n&/' $PROJECT/recipes/questions.yaml
    # It writes no searches step by step that can be read: here a question is its own search, and ends in the answer it was written with.
    sed -i 's/kind: stepwise/kind: multi_hop\n  by: annotations/; s/  examples: few//' $PROJECT/recipes/labels/refinement.yaml
    sed -i 's/epochs: 3/epochs: 1/; s/max_length: 4096/max_length: 1024/; s/lora_rank: 64/lora_rank: 16/' $PROJECT/recipes/train/refinement.yaml
    sed -i 's/epochs: 3/epochs: 1/; s/max_length: 4096/max_length: 1024/; s/lora_rank: 64/lora_rank: 16/' $PROJECT/recipes/train/reader.yaml
fi
refinery run $PROJECT

# A follow-up that only the conversation explains.
refinery serve $PROJECT --port $((PORT + 1)) >$OUTPUT/serve.log 2>&1 &
ANSWERS=$!
trap 'kill $SERVER $ANSWERS' EXIT
wait_for $ANSWERS "http://127.0.0.1:$((PORT + 1))/health" $OUTPUT/serve.log
python - "http://127.0.0.1:$((PORT + 1))/v1" <<'PYTHON'
import sys
from openai import OpenAI

client = OpenAI(base_url=sys.argv[1], api_key="none", timeout=1200)
turns = [("user", "Who wrote the music of Moon River?"), ("assistant", "Henry Mancini"), ("user", "And who wrote its lyrics?")]
messages = [{"role": role, "content": text} for role, text in turns]
reply = client.chat.completions.create(model=client.models.list().data[0].id, messages=messages)
condensed = [step["text"] for step in reply.model_extra["refinery"]["trace"] if step["name"] == "condense"]
print(f"follow-up: {turns[-1][1]}\nread as:   {condensed}\nanswer:    {reply.choices[0].message.content}")
PYTHON
