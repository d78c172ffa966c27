#!/bin/sh
# The tables and figures of RA-ISF, from the downloads to `refinery report`. Run it again to continue it.
#   recipes/ra_isf/reproduce.sh --dry-run       # the plan of all steps, with their dollars, hours and disk
#   STAND_IN=1 recipes/ra_isf/reproduce.sh      # every step on rows that ship with a stand-in for the models, with tiny models
set -e
cd "$(dirname "$0")/../.."
exec refinery run recipes/ra_isf/reproduce.yaml ${STAND_IN:+--stand-in} "$@"
