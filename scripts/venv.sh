# Sourced by the scripts beside it, from the repository root: `ready NAME` makes .venv hold what
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
  local pins=(requirements/serve.txt "requirements/$1.txt" pyproject.toml simulators/*/pyproject.toml)
  local stamp=".venv/ready-$1"
  usable_venv || make_venv
  local key
  key="$(cat "${pins[@]}" | cksum)"
  [ "$(cat "$stamp" 2> /dev/null)" = "$key" ] && return
  say "installing what requirements/$1.txt pins (once)"
  local pip=(.venv/bin/python -m pip --disable-pip-version-check install --quiet)
  "${pip[@]}" -r "requirements/$1.txt" || fail "could not install; the lines above say why"
  local folder
  for folder in . simulators/*/; do
    "${pip[@]}" --no-deps --editable "./$folder" ||
      fail "could not install $folder; the lines above say why"
  done
  echo "$key" > "$stamp"
}
