#!/usr/bin/env bash
# Everything that a recipe can say about teachers, prompts and checks beyond one teacher with the shipped prompts, with the study's base model
# behind `transformers serve` in every role. It is small and its replies are messy: what counts is that each row ends as labeled or as
# rejected with a reason, and that what a path promises is in the rows.
#   recipes/real/label_paths.sh        (SAMPLE=2 questions of each of three files; DTYPE=bfloat16 where the processor computes in it)
#   SCRIPTED=1 recipes/real/label_paths.sh    with the demo's scripted teacher; it knows none of these questions
# Hardware: 2 CPU cores, 4 GiB of memory. Interrupted, the same command goes on; replies are kept, and none is asked for twice.
set -euo pipefail
cd "$(dirname "$0")/../.."

STUDY=recipes/real
DATA=$STUDY/data
OUTPUT=runs/real/label_paths${SCRIPTED:+_scripted}
SAMPLE=${SAMPLE:-2}
HELD_OUT="[$DATA/hotpotqa/validation.json, $DATA/two_wiki/validation.json, $DATA/musique/validation.jsonl]"
source $STUDY/base_server.sh
mkdir -p $OUTPUT
if [ "${SCRIPTED:-}" ]; then
    python -m refinery.demo.teacher.replies --port "$PORT" >$OUTPUT/server.log 2>&1 &
    SERVER=$!
    trap 'kill $SERVER' EXIT
    wait_for $SERVER "$TEACHER/models" $OUTPUT/server.log
else
    serve_base $OUTPUT
fi

model() { # KEYS: the model with these keys beside its own
    echo "{base_url: '$TEACHER', model: $MODEL, timeout_seconds: 600, deadline_seconds: 3600, calls_in_flight: ${CALLS:-2}, ${1:-max_tokens: 128}}"
}
SAMPLED=$(model "max_tokens: 128, temperature: 0.7")
label() { # NAME RECIPE OVERRIDE...: about held-out questions. All runs share their replies.
    local name=$1 recipe=$2 && shift 2
    refinery distill "recipes/distill/$recipe.yaml" "output_dir=$OUTPUT/$name" store=$OUTPUT/replies.sqlite reader=by_folder "questions=$HELD_OUT" \
        "sample=$SAMPLE" max_failure_share=1 rows_in_flight=4 "teacher=$(model)" --resume "$@" >$OUTPUT/$name.log 2>&1 ||
        { echo "$name:" && tail -n3 $OUTPUT/$name.log; } >&2
}
of_rows() { # NAME RECIPE OVERRIDE...: with the questions' own paragraphs
    label "$@" "retriever={name: candidates}" passages_per_query=3
}

# Several teachers: one that is cut off and its fallback; three samples; a stronger one; a judge.
label decomposition decomposition_teacher
label decomposition_fallback decomposition_teacher "teacher=$(model "max_tokens: 8")" "fallbacks=[$(model)]"
label decomposition_samples decomposition_teacher "teacher=$SAMPLED" samples=3
label decomposition_best_of_judge decomposition_teacher "teacher=$SAMPLED" samples=3 best_of=judge "judge=$(model)"
label decomposition_escalate decomposition_teacher "teacher=$SAMPLED" samples=3 "escalate={teacher: $(model), min_agreement: 0.6}"
label decomposition_judge decomposition_teacher "judge=$(model)"
label self_knowledge_vote self_knowledge_teacher "teacher=$SAMPLED" samples=3
label self_knowledge_probable self_knowledge_teacher "escalate={teacher: $(model), min_probability: 0.9}"
of_rows relevance_vote relevance_listwise "teacher=$SAMPLED" samples=3 options.swap=false

# Prompts and examples of one's own.
mkdir -p $OUTPUT/prompts
cat >$OUTPUT/prompts/teacher_decomposition.jinja <<'TEXT'
{# Shorter than the shipped one. -#}
Write the two simple questions that must be answered first, as {"sub_questions": ["first question", "second question"]}.
{%- if examples | default("zero") == "few" %} Write #1 for the answer of the first.{% endif %}

Question: {{ question }}
Reply:
TEXT
label decomposition_own_prompt decomposition_teacher prompts=$OUTPUT/prompts
refinery distill $STUDY/distill/decomposition.yaml "output_dir=$OUTPUT/annotated" --resume >$OUTPUT/annotated.log
label decomposition_examples decomposition_teacher options.examples=zero "examples={rows: $OUTPUT/annotated/train.jsonl, count: 2}"
label questions_examples questions reader=jsonl questions=[] sample=null "limit=$((SAMPLE * 3))" options.documents=null \
    "retriever={name: bm25, passages: $DATA/passages.jsonl}" "examples={rows: $DATA/question_examples.jsonl, count: 2}"

# Checks while labels are made.
of_rows relevance_rationale relevance_each options.rationale=true
label self_knowledge_rationale self_knowledge_teacher options.rationale=true
of_rows refinement_min_searches refinement_stepwise options.min_searches=annotated
of_rows refinement_knowledge refinement_stepwise "options.knowledge=[$OUTPUT/self_knowledge_vote/validation.jsonl]"
of_rows refinement_f1 refinement_multi_hop options.keep_wrong_answers=false options.metric=f1.squad options.min_score=0.6
of_rows refinement_right_by_judge refinement_multi_hop options.keep_wrong_answers=false options.metric=judge
of_rows refinement_lines refinement_multi_hop options.several_answers=lines
of_rows refinement_one refinement_multi_hop options.several_answers=one
label relations decomposition_teacher options.by=annotations options.relations=questions teacher=null
label repeats decomposition_teacher repeats=similar_rejected "questions=[$DATA/musique/train.jsonl]" "evaluation_sets=[$DATA/musique/train.jsonl]"

# Ways to ask.
label parameters decomposition_teacher "teacher=$(model "max_tokens: 128, temperature: 0.7, top_p: 0.9, seed: 1, enable_thinking: false")"
label extra_body decomposition_teacher "teacher=$(model "max_tokens: 128, extra_body: {chat_template_kwargs: {day: Tuesday}}")"
[ "${SCRIPTED:-}" ] || label responses_api decomposition_teacher store=$OUTPUT/responses.sqlite "teacher=$(model "max_tokens: 128, protocol: openai_responses")"

python -m benchmarks.distill.replies $OUTPUT/*/ | tee $OUTPUT.md
for task in decomposition relevance refinement; do
    refinery evaluate-labels $(ls -d $OUTPUT/${task}*/metrics.json | xargs dirname) --format markdown
done | tee -a $OUTPUT.md
refinery watch $OUTPUT/decomposition --once
