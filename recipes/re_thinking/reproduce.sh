#!/bin/sh
# Every table of re-thinking, from the downloads to `refinery report`. Run it again to continue it.
#   recipes/re_thinking/reproduce.sh --dry-run       # the plan of all steps, with their dollars, hours and disk
#   STAND_IN=1 recipes/re_thinking/reproduce.sh      # every step on rows that ship with a stand-in for the models, in seconds
set -e
cd "$(dirname "$0")/../.."
exec refinery run recipes/re_thinking/reproduce.yaml ${STAND_IN:+--stand-in} "$@"
