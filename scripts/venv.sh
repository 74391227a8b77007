# Sourced by the scripts beside it, from the repository root: `ready NAME ...` makes .venv hold what
# requirements/NAME.txt pins, and the package itself. A stamp makes a second run immediate.
# PYTHON names another interpreter than python3.

say() { echo "anychip: $*" >&2; }

fail() {
  say "$*"
  exit 1
}

supported() { "$1" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))'; }

make_venv() {
  local python="${PYTHON:-python3}"
  command -v "$python" > /dev/null ||
    fail "there is no $python; install Python 3.10 to 3.13, or name one: PYTHON=/path/to/python $0"
  supported "$python" ||
    fail "$python is $("$python" -V 2>&1), this needs Python 3.10 to 3.13;" \
      "name another: PYTHON=/path/to/python3.12 $0"
  say "making .venv with $("$python" -V 2>&1)"
  "$python" -m venv --clear .venv ||
    fail "$python cannot make virtual environments; install its venv module (Debian: python3-venv)"
  pwd -P > .venv/made-at
}

# The scripts in a .venv name its place, so one that was moved is made anew, like one whose Python
# was removed.
usable_venv() {
  [ "$(cat .venv/made-at 2> /dev/null)" = "$(pwd -P)" ] && supported .venv/bin/python 2> /dev/null
}

ready() {
  usable_venv || make_venv
  local name wanted=()
  for name in "$@"; do
    [ "$(cat ".venv/ready-$name" 2> /dev/null)" = "$(pins_of "$name")" ] || wanted+=("$name")
  done
  [ "${#wanted[@]}" -gt 0 ] || return 0
  install "${wanted[@]}"
  for name in "${wanted[@]}"; do
    pins_of "$name" > ".venv/ready-$name"
  done
}

# Change with whatever decides what is installed.
pins_of() { cat requirements/serve.txt "requirements/$1.txt" | cksum && pins_of_own; }
pins_of_own() { cat pyproject.toml simulators/*/pyproject.toml | cksum; }

install() {
  say "installing what requirements/ pins for: $* (once)"
  local pip=(.venv/bin/python -m pip --disable-pip-version-check install --quiet)
  local lists=() own=() name folder
  for name in "$@"; do lists+=(-r "requirements/$name.txt"); done
  # Python compiles a module when it is first imported, unless it is told to write nothing: most of
  # what is installed never is.
  [ -n "${PYTHONDONTWRITEBYTECODE:-}" ] || lists+=(--no-compile)
  "${pip[@]}" "${lists[@]}" || fail "could not install; the lines above say why"
  [ "$(cat .venv/ready-own 2> /dev/null)" = "$(pins_of_own)" ] && return
  for folder in . simulators/*/; do own+=(--editable "./$folder"); done
  "${pip[@]}" --no-deps "${own[@]}" || fail "could not install our own; the lines above say why"
  pins_of_own > .venv/ready-own
}
