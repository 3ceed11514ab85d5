#!/bin/sh
# Sets up .venv in this checkout where that is needed, then runs netdfl in it, or the tests:
#   sh nodes/start.sh run scenarios/quickstart.yaml
#   sh nodes/start.sh test
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
venv=$root/.venv

unset PYTHONDONTWRITEBYTECODE  # or every run would compile anew what it imports

say() { printf 'netdfl: %s\n' "$*" >&2; }

is_recent() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    for name in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
        if is_recent "$name"; then
            command -v "$name"
            return
        fi
    done
    found=$(python3 --version 2>/dev/null) || found='no python3'
    say "netdfl needs Python 3.11 or newer and found $found; install one, or name one: PYTHON=/path/to/python sh $0 ..."
    return 2
}

# A .venv without a working pip is one whose making was interrupted, or whose Python is gone.
make_venv() {
    if [ -x "$venv/bin/python" ] && is_recent "$venv/bin/python" && "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
        return
    fi
    python=$(find_python)
    say "making $venv with $("$python" --version)"
    if ! "$python" -m venv --clear "$venv"; then
        say "$python can't make a virtual environment; on Debian or Ubuntu: apt install python3-venv"
        return 2
    fi
}

# Shows what pip fetches and why it failed, and keeps all that pip says in .venv/install.log. What a first run imports
# is compiled then: all there is would take longer than all else but the fetching.
pip_install() {
    { PYTHONUNBUFFERED=1 "$venv/bin/python" -m pip install --no-compile --progress-bar off "$@" 2>&1 &&
        echo 'exit:0' || echo 'exit:1'; } |
        tee -a "$venv/install.log" |
        while IFS= read -r line; do
            case $line in
            *Downloading*' MB)'*) file=${line#*Downloading } && say "  fetching ${file%%-cp*} (${line##*\(}" ;;
            Installing\ collected*) say "  unpacking" ;;
            ERROR* | error*) say "  $line" ;;
            exit:*) exit "${line#exit:}" ;;
            esac
        done
}

install() {
    rm -f "$venv/install.log"
    say "installing PyTorch and the other packages; the first time takes some minutes"
    # A pip of before 2025 needs three times as long to find what fits; without a network this one has to do.
    "$venv/bin/python" -m pip install --quiet --retries 0 --timeout 10 'pip>=25' >/dev/null 2>&1 || :
    if pip_install -c "$root/constraints.txt" -e "$root${1:+[$1]}"; then
        return
    fi
    say "the tested versions (constraints.txt) can't be had here; trying the newest ones that fit"
    if ! pip_install -e "$root${1:+[$1]}"; then
        say "could not install; the reasons are in $venv/install.log"
        return 2
    fi
}

# One line that changes with what is to be installed, and with the place of the checkout.
wanted() { cat "$root/pyproject.toml" "$root/constraints.txt" | cksum && echo "$root"; }

# A stamp in .venv says what was set up, so that the next time nothing is asked of the network.
set_up() {
    stamp=$venv/.set-up${1:+-$1}
    if [ -x "$venv/bin/python" ] && [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(wanted)" ]; then
        return
    fi
    make_venv
    install "$1"
    wanted >"$stamp"
    [ -z "$1" ] || cp "$stamp" "$venv/.set-up"
    say "ready"
}

if [ "${1:-}" = test ]; then
    shift
    # What CI's tests want of Debian is installed while pip fetches.
    [ -z "${CI:-}" ] || "$(find_python)" "$root/tests/debian.py" </dev/null &
    set_up dev
    exec "$venv/bin/python" "$root/tests/run.py" "$@"
fi
set_up ''
exec "$venv/bin/netdfl" "$@"
