#!/bin/sh
# `./x up`, read by x: the coordinator with its own Postgres and one agent on this machine, until Ctrl-C.
# shellcheck disable=SC2154 # ROOT, CARGO_TARGET_DIR, UID_NOW and the small words come from x

# The state directory holds what the coordinator keeps (ca, pg, secrets) and beside it
#     bin/ the binaries that run   identity/ the agent's certificate   agent/ its spool   log/   *.pid   up.lock
up_state() {
    if [ -n "${PARALLAX_STATE:-}" ]; then
        STATE=$PARALLAX_STATE
    elif [ "$UID_NOW" = 0 ]; then
        # Not below /root: Postgres never runs as root and must be able to enter.
        STATE=/var/lib/parallax-up
    else
        STATE=${XDG_STATE_HOME:-$HOME/.local/state}/parallax-up
    fi
    case $STATE in /*) ;; *) STATE=$PWD/$STATE ;; esac
    mkdir -p -- "$STATE/bin" "$STATE/log" "$STATE/agent"
    # Resolved, because is_ours compares it with what the kernel says.
    STATE=$(CDPATH='' cd -P -- "$STATE" && pwd -P)
    chmod 700 "$STATE/agent"
}

up() {
    ensure_rust
    ensure up cc certificates postgres
    choose_target
    up_state
    exec 9>"$STATE/up.lock"
    if have flock && ! flock -n 9; then
        die "another ./x up uses $STATE; stop it, or choose another directory with PARALLAX_STATE"
    fi
    build demo/parallax --profile demo -p parallax-coordinator
    # Apart from the coordinator, and without the lab's features: this agent talks to the real network.
    build demo/parallax-agent --profile demo -p parallax-agent
    stop_left_over agent parallax-agent
    stop_left_over coordinator parallax
    for binary in parallax parallax-agent; do
        # Copies, so that a later build replaces nothing under a running process.
        cp -- "$CARGO_TARGET_DIR/demo/$binary" "$STATE/bin/$binary.new"
        mv -- "$STATE/bin/$binary.new" "$STATE/bin/$binary"
    done
    fresh_identity

    coordinator=
    agent=
    # HUP: the terminal was closed. The last trap runs on every way out.
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    trap stop_both EXIT
    # Emptied first: an earlier run's log says ready too.
    : >"$STATE/log/coordinator.log"
    "$STATE/bin/parallax" serve --state "$STATE" "$@" </dev/null >"$STATE/log/coordinator.log" 2>&1 9>&- &
    coordinator=$!
    echo "$coordinator" >"$STATE/coordinator.pid"
    wait_ready
    "$STATE/bin/parallax-agent" run --coordinator "$(ready grpc)" --identity "$STATE/identity" --state "$STATE/agent" \
        </dev/null >"$STATE/log/agent.log" 2>&1 9>&- &
    agent=$!
    echo "$agent" >"$STATE/agent.pid"
    say "up"
    # Without a configuration of the operator's own.
    if [ $# = 0 ] && [ -z "${PARALLAX_CONFIG:-}" ]; then more "mode observe: it measures and judges and changes nothing"; fi
    show_where
    while kill -0 "$coordinator" 2>/dev/null && kill -0 "$agent" 2>/dev/null; do
        # In the background, so that a signal is served at once and not when the sleep ends.
        sleep 1 9>&- &
        wait $! || :
    done
    dead=coordinator
    if kill -0 "$coordinator" 2>/dev/null; then dead=agent; fi
    say "the $dead ended; the last lines of $STATE/log/$dead.log:"
    tail -n 15 "$STATE/log/$dead.log" >&2
    exit 1
}

# One word of the line that the coordinator prints when it is ready. Who listens everywhere is met on the loopback.
ready() {
    sed -n "s/^parallax: ready .*$1=\\([^ ]*\\).*/\\1/p" "$STATE/log/coordinator.log" | tail -n 1 |
        sed 's/^0\.0\.0\.0:/127.0.0.1:/; s/^\[::\]:/[::1]:/'
}

wait_ready() {
    tries=0
    until grep -q '^parallax: ready ' "$STATE/log/coordinator.log"; do
        tries=$((tries + 1))
        if [ "$tries" -gt 300 ] || ! kill -0 "$coordinator" 2>/dev/null; then
            say "the coordinator did not get ready:"
            tail -n 15 "$STATE/log/coordinator.log" >&2
            exit 1
        fi
        sleep 0.2 9>&-
    done
}

show_where() {
    case $(ready web) in
        unix:*) more "page    $(ready web)" ;;
        *) more "page    http://$(ready web)/" ;;
    esac
    more "matrix  $STATE/bin/parallax matrix --state $STATE"
    if [ "$(ready database)" = embedded ]; then more "sql     psql -h $STATE/pg/socket -U parallax parallax"; fi
    more "logs    $STATE/log/"
    more "Ctrl-C stops it; the data stays in $STATE"
}

# A new certificate at each start: the old one may have expired while nothing ran.
fresh_identity() {
    rm -rf -- "$STATE/identity.new"
    "$STATE/bin/parallax" vantage issue local --out "$STATE/identity.new" --state "$STATE" >&2 ||
        die "the agent got no certificate, see above"
    rm -rf -- "$STATE/identity"
    mv -- "$STATE/identity.new" "$STATE/identity"
}

stop_both() {
    trap '' HUP INT TERM
    say "stopping"
    if [ -n "$agent" ]; then stop agent parallax-agent; fi
    if [ -n "$coordinator" ]; then stop coordinator parallax; fi
}

# After a kill -9 of this script both may still run.
stop_left_over() {
    [ -e "$STATE/$1.pid" ] || return 0
    if is_ours "$(cat -- "$STATE/$1.pid")" "$2"; then say "stopping the $1 that an earlier run left behind"; fi
    stop "$1" "$2"
}

# stop NAME BINARY: asks, waits, and after 20 s insists. A pid file is believed only while that process runs our binary.
stop() {
    pid=$(cat -- "$STATE/$1.pid") || return 0
    tries=0
    while is_ours "$pid" "$2"; do
        case $tries in
            0) kill -TERM "$pid" 2>/dev/null || : ;;
            100) kill -KILL "$pid" 2>/dev/null || : ;;
        esac
        tries=$((tries + 1))
        sleep 0.2 9>&-
    done
    rm -f -- "$STATE/$1.pid"
}

is_ours() {
    case $1 in '' | *[!0-9]*) return 1 ;; esac
    case $(readlink "/proc/$1/exe") in "$STATE/bin/$2" | "$STATE/bin/$2 (deleted)") return 0 ;; esac
    return 1
}
