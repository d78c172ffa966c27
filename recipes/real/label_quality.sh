#!/usr/bin/env bash
# How good the labels of a real teacher are: the study's base model behind `transformers serve` labels annotated rows of four datasets, and
# `refinery evaluate-labels` compares them with the annotations, beside two baselines: the annotations themselves, which show what can be
# reached, and a teacher that says the same about everything (constant_teacher.py).
#   recipes/real/label_quality.sh      (SAMPLE=8 questions of each dataset; DTYPE=bfloat16 where the processor computes in it)
#   REFINEMENT_SAMPLE=2 recipes/real/label_quality.sh    fewer questions for the task with the longest prompts
#   SCRIPTED=1 recipes/real/label_quality.sh    beside it the demo's scripted teacher, which knows its own world and reads by rules
# Hardware: 2 CPU cores, 4 GiB of memory. Interrupted, the same command goes on; replies are kept, and none is asked for twice.
set -euo pipefail
cd "$(dirname "$0")/../.."

OUTPUT=runs/real/label_quality
SAMPLE=${SAMPLE:-8}
DATA=recipes/sample/data
DECOMPOSED="$DATA/two_wiki/train.json, $DATA/musique/train.jsonl, $DATA/strategyqa/train.json" # HotpotQA has no annotated sub-questions
ALL="$DATA/hotpotqa/train.json, $DECOMPOSED"
source recipes/real/base_server.sh
serve_base $OUTPUT
CONSTANT_TEACHER=http://127.0.0.1:$((PORT + 1))/v1
python recipes/real/constant_teacher.py --port $((PORT + 1)) >$OUTPUT/constant.log 2>&1 &
CONSTANT=$!
trap 'kill $CONSTANT $SERVER' EXIT
wait_for $CONSTANT "$CONSTANT_TEACHER/models" $OUTPUT/constant.log
SCRIPTED_TEACHER=http://127.0.0.1:$((PORT + 2))/v1
if [ "${SCRIPTED:-}" ]; then
    python -m refinery.demo.teacher.replies --port $((PORT + 2)) >$OUTPUT/scripted.log 2>&1 &
    DEMO=$!
    trap 'kill $CONSTANT $DEMO $SERVER' EXIT
    wait_for $DEMO "$SCRIPTED_TEACHER/models" $OUTPUT/scripted.log
fi

model() { # MOST TOKENS
    echo "{base_url: '$TEACHER', model: $MODEL, max_tokens: $1, timeout_seconds: 1800, deadline_seconds: 7200, calls_in_flight: ${CALLS:-2}}"
}
label() { # RUN RECIPE QUESTIONS OVERRIDE...
    local run=$OUTPUT/$1 recipe=$2 questions=$3 && shift 3
    mkdir -p "$(dirname $run)"
    refinery distill "recipes/distill/$recipe.yaml" output_dir=$run store=$OUTPUT/replies.sqlite reader=by_folder "questions=[$questions]" \
        "sample=$SAMPLE" limit=null max_failure_share=1 rows_in_flight=4 --resume "$@" >$run.log || tail -n3 $run.log >&2
}
by_each() { # TASK RECIPE QUESTIONS OVERRIDE...: by the real teacher, by the constant one, by the scripted one, and by the annotations
    local task=$1 recipe=$2 questions=$3 && shift 3
    label $task/real $recipe "$questions" "$@" "teacher=$(model 256)"
    label $task/constant $recipe "$questions" "$@" "teacher={base_url: '$CONSTANT_TEACHER', model: constant}"
    [ -z "${SCRIPTED:-}" ] || label $task/scripted $recipe "$questions" "$@" "teacher={base_url: '$SCRIPTED_TEACHER', model: scripted}"
    label $task/annotated $recipe "$questions" "$@" options.by=annotations teacher=null
}
by_each relevance relevance_listwise "$ALL" "retriever={name: candidates}" passages_per_query=3 options.swap=false
by_each decomposition decomposition_teacher "$DECOMPOSED" options.undivided=keep
# What the model says that it knows, and what it knows: its answers without a search.
label self_knowledge/real self_knowledge_teacher "$ALL" "teacher=$(model 128)"
label self_knowledge/constant self_knowledge_teacher "$ALL" "teacher={base_url: '$CONSTANT_TEACHER', model: constant}"
label self_knowledge/closed_book self_knowledge_student "$ALL" options.samples=1 "target_endpoint=$(model 16)"
# Last, because its first prompt holds all paragraphs of a question: up to 3,000 tokens. A processor that reads one writes no other reply
# meanwhile, so it gets one call at a time.
CALLS=1 SAMPLE=${REFINEMENT_SAMPLE:-$SAMPLE} by_each refinement refinement_multi_hop "$ALL" "retriever={name: candidates}" passages_per_query=3

{
    for task in relevance decomposition refinement; do
        refinery evaluate-labels $OUTPUT/$task/*/ --breakdown --format markdown
    done
    refinery evaluate-labels $OUTPUT/self_knowledge/*/ --closed-book $OUTPUT/self_knowledge/closed_book --breakdown --format markdown
} | tee $OUTPUT.md
