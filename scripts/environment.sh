# Sourced by the other scripts here, which set $root: makes sure that $root/.venv is ready, and sets
# $python. Usually that is one comparison of a stamp, without starting Python.

python=$root/.venv/bin/python

# What the environment depends on. scripts/bootstrap.py writes this text at its end, so that it
# is computed once.
expected_stamp() {
    printf '%s\n' "backend ${LOCALSPEC_BACKEND:-auto}" "cmake ${CMAKE_ARGS:-}" \
        "python ${LOCALSPEC_PYTHON:-any}" "root $root"
    uname -sm # not the host's name, which changes with the network
    processor
    cd "$root" || return 1
    set --
    for file in localspec/kernels/*.py localspec/kernels/source/*.* localspec/kernels/source/*/*.h; do
        if [ -f "$file" ]; then set -- "$@" "$file"; fi
    done
    cksum pyproject.toml requirements/*.lock scripts/bootstrap*.py scripts/llama_* \
        localspec/core/kernel/rows.c "$@"
}

# A build fits one kind of processor; a disk or an image can move to another.
processor() {
    if [ -r /proc/cpuinfo ]; then
        while read -r line; do
            case $line in
                'model name'* | flags* | Features* | 'CPU part'*) printf '%s\n' "$line" ;;
                '') break ;; # of the first core
            esac
        done </proc/cpuinfo
    else
        sysctl -n machdep.cpu.brand_string 2>/dev/null || :
    fi
}

is_new_enough() {
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null
}

# Prints the interpreter that makes the environment.
find_python() {
    if [ -n "${LOCALSPEC_PYTHON:-}" ]; then
        if is_new_enough "$LOCALSPEC_PYTHON"; then
            printf '%s\n' "$LOCALSPEC_PYTHON"
            return
        fi
        echo "localspec: LOCALSPEC_PYTHON=$LOCALSPEC_PYTHON is not a Python 3.11 to 3.14;" \
            "point it at one or unset it" >&2
        return 1
    fi
    for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
        if is_new_enough "$candidate"; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    echo "localspec: needs Python 3.11 to 3.14 and found none on PATH; install one" \
        "(python.org, your package manager) or set LOCALSPEC_PYTHON to its path" >&2
    return 1
}

# prepare PROFILE SCRIPT ARGUMENTS..., where PROFILE is runtime or dev. If there is something to do,
# this shell becomes bootstrap.py, which starts SCRIPT, the caller, again when all is ready.
prepare() {
    profile=$1
    shift
    ready=${LOCALSPEC_READY:-}
    unset LOCALSPEC_READY
    stamp=$(expected_stamp) || exit 1
    stamp_file=$root/.venv/$profile.stamp
    if [ -x "$python" ] && [ -r "$stamp_file" ] && [ "$(cat "$stamp_file")" = "$stamp" ]; then
        return
    fi
    if [ "$ready" = "$profile" ]; then
        return # bootstrap.py has just finished, whatever has changed since
    fi
    maker=$(find_python) || exit 1
    # PYTHONSAFEPATH would hide the other files of its folder from bootstrap.py.
    PYTHONSAFEPATH='' LOCALSPEC_STAMP=$stamp \
        exec "$maker" "$root/scripts/bootstrap.py" "$profile" sh "$@"
}
