#!/usr/bin/env bash
# The study with more rows and a larger base on one GPU of 80 GB, in pieces of at most 13 minutes.
#   recipes/real/gpu.sh OUTPUT prepare   # rows, base, index and labels: no GPU, about 5 minutes
#   recipes/real/gpu.sh OUTPUT           # the next of the list; again until `list` says that nothing is left
#   recipes/real/gpu.sh OUTPUT list
#   recipes/real/gpu.sh OUTPUT tables    # OUTPUT/SETTING.md and SETTING_by_kind.md
# A model is trained if one of its answers is not in RESULTS, and then gives those: own paragraphs and the open corpus side by side. RESULTS has
# small files, to be committed; everything else is under OUTPUT and may be lost between runs.
#   SMALL=1      a rehearsal on a CPU with the rows of the repository: two steps, four questions, a tiny base
#   SEEDS="42 1 2", MODELS="rag_3 rq_rag ...", MINUTES=13, SAMPLES=40, PYTHON, BASE_NAME (for model.py), BASE (a folder, or a name on the hub), SOURCE (for rows.py)
#   TRAIN_KEYS="strategy=lora lora_rank=64 learning_rate=2e-4"   more keys of every training run, LABEL_KEYS of labels, INFER_KEYS of every run of answers
set -u
ROOT=$(realpath "$(dirname "$0")/../..")
OUTPUT=$(realpath -m --relative-to="$ROOT" "${1:?folder of the output}") # results name it, so not the machine's folders above
cd "$ROOT" || exit
TASK=${2:-run}
STUDY=recipes/real
SMALL=${SMALL:-}
SIDE_BY_SIDE=${SIDE_BY_SIDE-$([ -n "$SMALL" ] || echo yes)} # the settings of a model, as a GPU is mostly idle when one process decodes
PYTHON=${PYTHON:-.venv/bin/python}
MINUTES=${MINUTES:-13}
SAMPLES=${SAMPLES:-40} # of self-consistency
BASE_NAME=${BASE_NAME:-qwen2.5-coder-0.5b}
read -ra SEEDS <<<"${SEEDS:-42 1 2}"
read -ra MODELS <<<"${MODELS:-untrained rag_3 rq_rag rag_6 rag_10 prompted}"
read -ra LABEL_KEYS <<<"${LABEL_KEYS:-}"
read -ra TRAIN_KEYS <<<"${TRAIN_KEYS:-}"
read -ra INFER_KEYS <<<"${INFER_KEYS:-}"
if [ -n "$SMALL" ]; then
  ROWS=$STUDY/data RESULTS=${RESULTS:-$OUTPUT/results} BASE=${BASE:-refinery/demo/checkpoint}
  TRAIN_KEYS=(max_steps=2 limit=8 dtype=float32 "${TRAIN_KEYS[@]}") INFER_KEYS=(limit=4 max_new_tokens=6 llm.dtype=float32 "${INFER_KEYS[@]}")
else
  ROWS=$OUTPUT/rows RESULTS=${RESULTS:-$STUDY/results/$BASE_NAME} BASE=${BASE:-$OUTPUT/base}
  INFER_KEYS=(llm.dtype=bfloat16 llm.kv_tokens=400000 "${INFER_KEYS[@]}")
fi
export HF_HUB_OFFLINE=${HF_HUB_OFFLINE:-1} TOKENIZERS_PARALLELISM=false NO_COLOR=1 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
export JAX_PLATFORMS=cpu XLA_PYTHON_CLIENT_PREALLOCATE=false # where a library imports JAX after all
BEGAN=$SECONDS
END=$(($(date +%s) + MINUTES * 60))
mkdir -p "$OUTPUT/logs" "$RESULTS"

left() { echo $((END - $(date +%s))); }
files() { echo "[$ROWS/hotpotqa/$1.json, $ROWS/two_wiki/$1.json, $ROWS/musique/$1.jsonl]"; }

# step NAME COMMAND...: what it prints is in a log; one line says how it ended. It is stopped when the time is over.
step() {
  local name=$1 began=$SECONDS code=0 seconds; shift
  seconds=$([ "$TASK" = run ] && left || echo 86400)
  timeout -k 5 "$((seconds > 5 ? seconds : 5))" "$@" >"$OUTPUT/logs/$name.log" 2>&1 || code=$?
  echo "$((SECONDS - BEGAN)) s: $name ended with code $code after $((SECONDS - began)) s" | tee -a "$OUTPUT/logs/steps.txt"
  [ $code = 0 ] || { tail -n 3 "$OUTPUT/logs/$name.log" | cut -c1-300; return $code; }
}

# label NAME RECIPE KEY=VALUE...
label() {
  local name=$1 recipe=$2; shift 2
  step "labels_$name" "$PYTHON" -m distill "$STUDY/distill/$recipe.yaml" "questions=$(files train)" "evaluation_sets=$(files test)" \
    "output_dir=$OUTPUT/labels/$name" "$@" "${LABEL_KEYS[@]}" --resume
}

prepare() {
  if [ -z "$SMALL" ]; then
    HF_HUB_OFFLINE=0 step rows "$PYTHON" $STUDY/rows.py --output "$ROWS" ${SOURCE:+--source "$SOURCE"} || return
    [ "$BASE" != "$OUTPUT/base" ] || HF_HUB_OFFLINE=0 step base "$PYTHON" $STUDY/model.py --base "$BASE_NAME" --output "$BASE" || return
  fi
  step index "$PYTHON" -m refinery.cli index "$ROWS/passages.jsonl" --output "$OUTPUT/index" --retriever recipes/retrieval/bm25.yaml --resume || return
  label refinement refinement || return
  for count in 3 6 10; do label "answers_$count" answers "passages_per_query=$count" || return; done
}

# train MODEL SEED: all weights, two epochs of joined rows; about as many steps for each model.
train() {
  local model=$1 seed=$2 recipe=rag labels=answers_${1#rag_} keys=()
  case $model in # 2,048 tokens are enough for almost every row but those of ten passages; 172 to 194 steps with the tokenizer of Qwen2.5
  rq_rag) recipe=rq_rag labels=refinement keys=(max_length=2048 gradient_accumulation_steps=8) ;;
  rag_3) keys=(max_length=2048 gradient_accumulation_steps=6) ;;
  rag_6) keys=(max_length=2048 gradient_accumulation_steps=9) ;;
  rag_10) keys=(max_length=4096 gradient_accumulation_steps=7) ;;
  esac
  step "train_${model}_s$seed" "$PYTHON" -m train "$STUDY/train/$recipe.yaml" "base=$BASE" "data=[$OUTPUT/labels/$labels/train.jsonl]" "validation=[]" \
    "output_dir=$OUTPUT/models/${model}_s$seed" "seed=$seed" epochs=2 learning_rate=2e-5 per_device_train_batch_size=1 packing=true "${keys[@]}" \
    eval_steps=null metric_for_best_model=null save_steps=10000 logging_steps=8 "${TRAIN_KEYS[@]}" --resume &&
    rm -rf "$OUTPUT/models/${model}_s$seed/checkpoints"
}

# is_trained MODEL: the others are the base, which answers once, without a seed.
is_trained() { case $1 in untrained | prompted) return 1 ;; esac; }

# answers MODEL: a line for each of its runs, SETTING RECIPE NAME KEY=VALUE...
answers() {
  case $1 in
  untrained) printf '%s\n' "closed direct direct" "own rag rag" "open rag rag" ;;
  prompted) for setting in own open; do printf '%s\n' "$setting re_thinking re_thinking" "$setting migres migres"; done ;;
  rag_*) for setting in own open; do reader "$setting" "${1#rag_}"; done ;;
  rq_rag)
    for setting in own open; do printf '%s\n' "$setting rq_rag_adaptive rq_rag_adaptive" "$setting rq_rag rq_rag"; done
    printf '%s\n' "validation_own rq_rag rq_rag sample=null" "validation_open rq_rag rq_rag sample=null" # few questions, so all
    ;;
  esac
}

# reader SETTING PASSAGES: one search, and the baselines at the cost of a tree: the vote of many samples, and a draft of the answer as second query.
reader() {
  echo "$1 rag_tuned rag_tuned_$2 passages_per_query=$2"
  [ "$2" != 3 ] || echo "$1 rag_tuned self_consistency_$SAMPLES decoder=self_consistency options.samples=$SAMPLES options.temperature=0.7 questions_in_flight=16"
  [ "$2" != 6 ] || echo "$1 rag_tuned iterative decoder=iter_retgen options.generation=answer options.reads=all passages_per_query=3"
}

# missing MODEL SEED: the lines of `answers` without results, with the seed in their names.
missing() {
  local setting recipe name keys
  answers "$1" | while read -r setting recipe name keys; do
    ! is_trained "$1" || name=${name}_s$2
    [ -f "$RESULTS/$setting/$name/metrics.json" ] || echo "$setting $recipe $name $keys"
  done
}

# answer MODEL SEED SETTING, with lines of `missing` on its input: all runs of a setting in one process.
answer() {
  local model=$1 seed=$2 wanted=$3 folder=$BASE setting recipe name keys words=() runs=() of=()
  ! is_trained "$model" || folder=$OUTPUT/models/${model}_s$seed
  while read -r setting recipe name keys; do
    [ "$setting" = "$wanted" ] || continue
    read -ra words <<<"$keys"
    of=("questions=$(files "$(case $setting in validation*) echo validation ;; *) echo test ;; esac)")")
    case $setting in *open) of+=("retriever={name: bm25, index: $OUTPUT/index}") ;; esac
    runs+=(-- "$STUDY/infer/$recipe.yaml" "name=$name" "output_dir=$OUTPUT/runs/$setting/$name" "llm.base=$folder" "${of[@]}"
      questions_in_flight=128 "${INFER_KEYS[@]}" "${words[@]}")
  done
  [ ${#runs[@]} = 0 ] || step "answers_${model}_s${seed}_$wanted" "$PYTHON" $STUDY/answers.py --results "$RESULTS" --until $((END - 45)) "${runs[@]}"
}

answer_all() {
  local model=$1 seed=$2 lines; lines=$(missing "$model" "$seed")
  for setting in closed own open validation_own validation_open; do
    answer "$model" "$seed" $setting <<<"$lines" &
    [ -n "$SIDE_BY_SIDE" ] || wait
  done
  wait
}

run() {
  for seed in "${SEEDS[@]}"; do
    for model in "${MODELS[@]}"; do
      is_trained "$model" || [ "$seed" = "${SEEDS[0]}" ] || continue
      [ -n "$(missing "$model" "$seed")" ] || continue
      [ "$(left)" -gt 200 ] || { echo "$((SECONDS - BEGAN)) s: $model, seed $seed: not begun, no time left"; continue; }
      ! is_trained "$model" || train "$model" "$seed" || continue
      answer_all "$model" "$seed"
    done
  done
  list
}

list() {
  local lines
  lines=$(for seed in "${SEEDS[@]}"; do for model in "${MODELS[@]}"; do missing "$model" "$seed"; done; done | cut -d' ' -f1,3 | sort -u)
  echo "$(ls "$RESULTS"/*/*/metrics.json 2>/dev/null | wc -l) results in $RESULTS, $(grep -c . <<<"$lines") left:" ${lines//$'\n'/, }
}

tables() {
  local metrics=(--metric em.squad --metric f1.squad --format markdown) runs expanded=$OUTPUT/expanded
  "$PYTHON" $STUDY/answers.py --results "$RESULTS" --expand "$expanded" || return
  for setting in own open validation_own validation_open; do
    runs=("$expanded/$setting"/*/)
    [ -d "${runs[0]}" ] || continue
    local baseline=(); [ -d "$expanded/$setting/rag_tuned_3_s${SEEDS[0]}" ] && baseline=(--baseline rag_tuned_3)
    "$PYTHON" -m refinery.cli compare "${runs[@]}" "${baseline[@]}" "${metrics[@]}" --over-seeds | tee "$OUTPUT/$setting.md"
    "$PYTHON" -m refinery.cli compare "${runs[@]}" "${baseline[@]}" "${metrics[@]}" --over-seeds --breakdown >"$OUTPUT/${setting}_by_kind.md"
  done
}

case $TASK in prepare | run | list | tables) "$TASK" ;; *) echo "gpu.sh: no task '$TASK'. Choose prepare, run, list or tables." >&2; exit 2 ;; esac
