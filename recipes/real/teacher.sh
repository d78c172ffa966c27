#!/usr/bin/env bash
# A real teacher: the study's base model behind `transformers serve` labels real rows in every task that asks a teacher. It is small and its
# replies are messy: what counts is that each row ends as labelled or as rejected with a reason, and how replies were read.
#   recipes/real/teacher.sh            (LIMIT=42 questions a task; DTYPE=bfloat16 where the processor computes in it)
# Hardware: 2 CPU cores, 4 GiB of memory. Interrupted, the same command goes on; replies are kept, and none is asked for twice.
set -euo pipefail
cd "$(dirname "$0")/../.."

STUDY=recipes/real
OUTPUT=runs/real/teacher
PORT=${PORT:-8765}
LIMIT=${LIMIT:-42}
HELD_OUT="[$STUDY/data/hotpotqa/validation.json, $STUDY/data/two_wiki/validation.json, $STUDY/data/musique/validation.jsonl]"

python $STUDY/model.py --output runs/real/base
mkdir -p $OUTPUT/hub/hub # the server lists what is cached there
HF_HOME=$OUTPUT/hub HF_HUB_OFFLINE=1 transformers serve runs/real/base --device cpu --dtype "${DTYPE:-float32}" --host 127.0.0.1 --port "$PORT" >$OUTPUT/server.log 2>&1 &
SERVER=$!
trap 'kill $SERVER' EXIT
until python -c "import urllib.request; urllib.request.urlopen('http://127.0.0.1:$PORT/health', timeout=5)" 2>/dev/null; do
    kill -0 $SERVER || { tail $OUTPUT/server.log >&2; exit 1; }
    sleep 1
done

label() { # NAME RECIPE OVERRIDE...
    local name=$1 recipe=$2 && shift 2
    refinery distill "recipes/distill/$recipe.yaml" "output_dir=$OUTPUT/$name" "limit=$LIMIT" max_failure_share=1 rows_in_flight=4 --resume \
        "teacher={base_url: 'http://127.0.0.1:$PORT/v1', model: runs/real/base, max_tokens: 128, timeout_seconds: 600, deadline_seconds: 3600, calls_in_flight: 2}" "$@" >$OUTPUT/$name.log ||
        tail -n3 $OUTPUT/$name.log >&2
}
of_rows() { # NAME RECIPE OVERRIDE...: about the held-out questions, with their own paragraphs
    label "$@" reader=by_folder "questions=$HELD_OUT" "retriever={name: candidates}"
}
label questions questions "options.documents=null" "retriever={name: bm25, passages: $STUDY/data/passages.jsonl}"
label self_knowledge self_knowledge_teacher reader=by_folder "questions=$HELD_OUT"
label decomposition decomposition_teacher reader=by_folder "questions=$HELD_OUT"
of_rows relevance_each relevance_each passages_per_query=3
of_rows relevance_listwise relevance_listwise passages_per_query=3
for kind in stepwise multi_hop ambiguous instruction; do
    of_rows refinement_$kind refinement_$kind
done
python -m distill.benchmark.replies $OUTPUT/*/ | tee runs/real/teacher.md
