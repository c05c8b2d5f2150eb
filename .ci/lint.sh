#!/bin/sh
# `./x lint` and `./x sqlx`, read by x: what a change must pass besides the tests.
# Every check runs, also after one has failed, so that one run shows everything.
# shellcheck disable=SC2154 # ROOT, CARGO_TARGET_DIR, PG_BIN and the small words come from x

DENY_VERSION=0.20.2
MACHETE_VERSION=0.9.2
# What a decision must not be able to reach: a runtime, SQL, a network, a clock, randomness, a log.
IMPURE='tokio|sqlx|sqlx-core|hyper|tonic|axum|reqwest|socket2|mio|rustls|ring|tracing|log|time|chrono|jiff|rand|rand_core|getrandom|fastrand|nix|libc'

lint() {
    ensure_rust
    ensure_rust_tools
    ensure lint cc certificates postgres
    choose_target
    cd "$ROOT" || exit
    cargo_tool cargo-deny "$DENY_VERSION"
    cargo_tool cargo-machete "$MACHETE_VERSION"
    if ! have shellcheck && may_install; then as_root install shellcheck || :; fi
    failed=
    skipped=
    step format cargo fmt --all --check
    step clippy cargo clippy --locked --quiet --workspace --all-targets --features parallax-agent/lab -- -D warnings
    step docs documentation
    step 'bans, licences, sources' cargo deny --log-level error --locked check bans licenses sources
    step advisories advisories
    step 'unused dependencies' cargo machete
    step imports imports
    step '.sqlx is fresh' sqlx_is_fresh
    step 'released migrations' released_migrations
    step shellcheck shell_scripts
    [ -z "$skipped" ] || say "lint: SKIPPED, see above:$skipped"
    [ -z "$failed" ] || die "lint: FAILED:$failed"
    say "lint: all passed"
}

# step NAME COMMAND...: a check answers 0 passed, 77 skipped, anything else failed.
step() {
    name=$1
    shift
    say "lint: $name"
    answer=0
    ("$@") || answer=$?
    case $answer in
        0) ;;
        77) skipped="$skipped [$name]" ;;
        *)
            say "lint: $name: FAILED"
            failed="$failed [$name]"
            ;;
    esac
}

cargo_tool() {
    have "$1" && return 0
    [ -z "${PARALLAX_NO_INSTALL:-}" ] || die "$1 is missing: cargo install --locked $1@$2"
    say "installing $1 $2 (a minute or two)"
    # Unoptimised: it builds in half the time and runs for seconds.
    cargo install --quiet --locked --debug "$1@$2" >&2 || die "cargo install --locked $1@$2 failed, see above"
}

documentation() {
    RUSTDOCFLAGS='-D warnings' cargo doc --locked --quiet --no-deps --document-private-items --workspace --features parallax-agent/lab
}

# A network that cannot be reached is no fault of the change; an advisory is.
advisories() {
    if ! timeout 120 cargo deny --log-level off --locked fetch db >/dev/null 2>&1; then
        say "SKIPPED: the advisory database cannot be reached from here; run ./x lint where it can be"
        return 77
    fi
    cargo deny --log-level error --locked check advisories
}

# Names of the crates that one of ours is built from; also ours only, one step deep.
graph() { cargo tree --locked -p "$1" -e normal,build --all-features --prefix none --format '{p}' | sed 's/ .*//' | sort -u; }
ours() {
    cargo tree --locked -p "$1" -e normal,build --all-features --depth 1 --prefix none --format '{p}' |
        sed -n 's/ .*//; s/^parallax-//p' | grep -vx "${1#parallax-}" | sort -u | tr '\n' ' '
}

imports() {
    wrong=0
    if ! graph parallax-decide | grep -qx parallax-decide; then
        say "cargo tree does not work here"
        return 1
    fi
    impure=$(graph parallax-decide | grep -Ex "$IMPURE") || :
    if [ -n "$impure" ]; then
        say "decide is pure, but is built from: $(echo "$impure" | tr '\n' ' ')"
        wrong=1
    fi
    may_import decide ''
    may_import proto ''
    may_import driver 'decide'
    may_import agent 'decide driver proto'
    may_import coordinator 'decide driver proto'
    may_import eval 'decide'
    may_import sim 'decide'
    return "$wrong"
}

may_import() {
    for crate in $(ours "parallax-$1"); do
        case " $2 " in
            *" $crate "*) ;;
            *)
                say "$1 must not import $crate; allowed: ${2:-none of ours}"
                wrong=1
                ;;
        esac
    done
}

# ---- checked queries -------------------------------------------------------------------------------------------------

# Describes every query against a throw-away Postgres with all migrations applied: one file a query into directory $1.
# A subshell, so that its trap stops the server whatever happens.
describe_queries() (
    into=$1
    scratch=$(mktemp -d "${TMPDIR:-/tmp}/parallax-sqlx.XXXXXX")
    log=$(mktemp)
    as_owner=
    if [ "$(id -u)" = 0 ]; then
        # Postgres refuses to run as root.
        owner=nobody
        if id postgres >/dev/null 2>&1; then owner=postgres; fi
        chown "$owner" "$scratch"
        as_owner="setpriv --reuid=$owner --regid=$(id -g "$owner") --clear-groups"
    fi
    trap 'cd /; $as_owner "$PG_BIN/pg_ctl" -D "$scratch/data" -m immediate -w stop >/dev/null 2>&1 || :; rm -rf -- "$scratch" "$log"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    cd "$scratch" || exit
    {
        $as_owner "$PG_BIN/initdb" -D "$scratch/data" -U parallax -A trust -E UTF8 --locale=C --no-sync &&
            $as_owner "$PG_BIN/pg_ctl" -D "$scratch/data" -l "$scratch/data/log" -w \
                -o "-F -c listen_addresses='' -c unix_socket_directories='$scratch'" start
    } >"$log" 2>&1 || {
        cat "$log" >&2
        return 1
    }
    query="$PG_BIN/psql"
    [ -x "$query" ] || query=psql
    "$query" -q -h "$scratch" -U parallax -d postgres -c 'create database parallax' || return 1
    for migration in "$ROOT"/migrations/[0-9]*.sql; do
        PGOPTIONS='-c client_min_messages=warning' "$query" -q -h "$scratch" -U parallax -d parallax -v ON_ERROR_STOP=1 -1 -f "$migration" || {
            say "migration does not apply: $migration"
            return 1
        }
    done
    # The macros write while they are expanded, and Cargo expands only what is newer than its last build.
    find "$ROOT/coordinator" "$ROOT/tests" -name '*.rs' -exec touch -c {} +
    cd "$ROOT" || exit
    SQLX_OFFLINE=false SQLX_OFFLINE_DIR=$into DATABASE_URL="postgres:///parallax?host=$scratch&user=parallax" \
        cargo check --locked --quiet --workspace --all-targets --features parallax-agent/lab
)

sqlx_is_fresh() (
    fresh=$(mktemp -d)
    trap 'rm -rf -- "$fresh"' EXIT
    describe_queries "$fresh" || return 1
    kept=$ROOT/coordinator/.sqlx
    [ -d "$kept" ] && diff -r "$kept" "$fresh" >&2 && return 0
    say "coordinator/.sqlx does not fit the queries and migrations: run ./x sqlx and commit what it writes"
    return 1
)

sqlx() {
    ensure_rust
    ensure sqlx cc certificates postgres
    choose_target
    fresh=$(mktemp -d)
    describe_queries "$fresh" || {
        rm -rf -- "$fresh"
        die "the queries were not described, see above; coordinator/.sqlx is as it was"
    }
    mkdir -p "$ROOT/coordinator/.sqlx"
    rm -f -- "$ROOT"/coordinator/.sqlx/query-*.json
    cp -- "$fresh"/* "$ROOT/coordinator/.sqlx/" 2>/dev/null || :
    rm -rf -- "$fresh"
    say "coordinator/.sqlx: $(find "$ROOT/coordinator/.sqlx" -name '*.json' | wc -l) queries"
}

# A migration that has shipped never changes: databases remember its checksum. A release adds its lines to the list:
#     (cd migrations && sha256sum [0-9]*.sql > released.sha256)
released_migrations() {
    list=$ROOT/migrations/released.sha256
    [ -e "$list" ] || return 0
    (cd "$ROOT/migrations" && sha256sum --quiet --strict -c released.sha256) || {
        say "a released migration was changed or removed: write a new one instead"
        return 1
    }
}

shell_scripts() {
    have shellcheck || {
        say "SKIPPED: shellcheck is not installed"
        return 77
    }
    shellcheck -x x .ci/run .ci/lint.sh deploy/up.sh
}
