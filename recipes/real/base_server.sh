# For scripts that source this file from the project's top: the study's base model in runs/real/base, behind `transformers serve` on loopback.
#   serve_base FOLDER    starts it, waits until it answers, and stops it when the script ends; FOLDER/server.log has what it says
# PORT is its port, and DTYPE=bfloat16 is faster where the processor computes in it. TEACHER is its address, and MODEL the model's name there.
# Where TEACHER and MODEL name a server that is running, such as llama.cpp's, which is faster on a processor, none is started.
BASE=runs/real/base
PORT=${PORT:-8765}
IS_RUNNING=${TEACHER:-}
TEACHER=${TEACHER:-http://127.0.0.1:$PORT/v1}
MODEL=${MODEL:-$BASE}

is_up() { python -c "import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=5)" "$1" 2>/dev/null; } # ADDRESS

wait_for() { # PROCESS ADDRESS LOG
    until is_up "$2"; do
        kill -0 "$1" || { tail "$3" >&2; exit 1; }
        sleep 1
    done
}

serve_base() {
    mkdir -p "$1"
    SERVER=
    [ -z "$IS_RUNNING" ] || return 0
    python recipes/real/model.py --output $BASE
    mkdir -p "$1/hub/hub" # the server lists what is cached there
    HF_HOME=$1/hub HF_HUB_OFFLINE=1 transformers serve $BASE --device cpu --dtype "${DTYPE:-float32}" --host 127.0.0.1 --port "$PORT" >"$1/server.log" 2>&1 &
    SERVER=$!
    trap 'kill $SERVER' EXIT
    wait_for $SERVER "http://127.0.0.1:$PORT/health" "$1/server.log"
}
