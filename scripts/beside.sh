# Sourced where several commands may run side by side: `begin NAME COMMAND ...` starts one, and
# `finish` waits for all, tells what each said in the order in which they began, and fails with the
# names of those that failed. venv.sh has `say` and `fail`.

begun=() pids=()
said="$(mktemp -d)"
trap 'end_all; rm -rf "$said"' EXIT

# What is left over when the script ends early, with all that it started.
end_all() {
  local pid
  for pid in "${pids[@]}"; do kill -- "-$pid" 2> /dev/null || true; done
}

begin() {
  set -m  # a process group for each, by which it is ended; in the script's own it could not be
  "${@:2}" > "$said/${#begun[@]}" 2>&1 < /dev/null &
  set +m
  begun+=("$1")
  pids+=("$!")
}

finish() {
  local i failed=()
  for i in "${!begun[@]}"; do
    say "${begun[i]}"
    wait "${pids[i]}" || failed+=("${begun[i]}")
    cat "$said/$i"
  done
  pids=()
  [ "${#failed[@]}" -eq 0 ] || fail "failed: ${failed[*]}"
}
