#!/usr/bin/env bash
# A real teacher: the study's base model behind `transformers serve` labels real rows in every task that asks a teacher. It is small and its
# replies are messy: what counts is that each row ends as labelled or as rejected with a reason, and how replies were read.
#   recipes/real/teacher.sh            (LIMIT=42 questions a task; DTYPE=bfloat16 where the processor computes in it)
# Hardware: 2 CPU cores, 4 GiB of memory. Interrupted, the same command goes on; replies are kept, and none is asked for twice.
set -euo pipefail
cd "$(dirname "$0")/../.."

STUDY=recipes/real
OUTPUT=${OUTPUT:-runs/real/teacher}
LIMIT=${LIMIT:-42}
HELD_OUT="[$STUDY/data/hotpotqa/validation.json, $STUDY/data/two_wiki/validation.json, $STUDY/data/musique/validation.jsonl]"
source $STUDY/base_server.sh
serve_base $OUTPUT

label() { # NAME RECIPE OVERRIDE...
    local name=$1 recipe=$2 && shift 2
    refinery distill "recipes/distill/$recipe.yaml" "output_dir=$OUTPUT/$name" "limit=$LIMIT" max_failure_share=1 rows_in_flight=4 --resume \
        "teacher={base_url: '$TEACHER', model: $MODEL, max_tokens: 128, timeout_seconds: 600, deadline_seconds: 3600, calls_in_flight: ${CALLS:-2}}" "$@" >$OUTPUT/$name.log ||
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
python -m benchmarks.distill.replies $OUTPUT/*/ | tee $OUTPUT.md
