# Sourced by ./run and ./test: makes .venv with everything the project needs, once.
# It is made again when pyproject.toml or constraints.txt change. Only Python 3.11 or newer is assumed.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv="$root/.venv"

setup() {
    local stamp python
    stamp=$(cat "$root/pyproject.toml" "$root/constraints.txt" | cksum)
    [ "$(cat "$venv/stamp" 2>/dev/null)" = "$stamp" ] && return
    for python in python3 python3.13 python3.12 python3.11 none; do
        "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break
    done
    if [ "$python" = none ]; then
        echo "factorank needs Python 3.11 or newer: none was found on the PATH" >&2
        exit 1
    fi
    echo "Setting up $venv: a few minutes, once" >&2
    rm -f "$venv/stamp"
    [ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
    # torch first: its pinned version must be there before a range elsewhere could ask for another.
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --constraint "$root/constraints.txt" torch
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --constraint "$root/constraints.txt" \
        --editable "$root[dev]"
    echo "$stamp" > "$venv/stamp"
}

mkdir -p "$venv"
if command -v flock >/dev/null; then # two commands at once: the second waits for the first
    exec 9> "$venv/lock"
    flock 9
    setup
    exec 9>&-
else
    setup
fi
