#!/bin/sh
# The tables and figures of RQ-RAG, from the downloads to `refinery report`. Run it again to continue it.
#   recipes/rq_rag/reproduce.sh --dry-run       # the plan of all steps, with their dollars, hours and disk
#   STAND_IN=1 recipes/rq_rag/reproduce.sh      # every step on rows that ship with a stand-in for the models, with tiny models
set -e
cd "$(dirname "$0")/../.."
exec refinery run recipes/rq_rag/reproduce.yaml ${STAND_IN:+--stand-in} "$@"
