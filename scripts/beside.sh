# Sourced where several commands may run side by side: `begin NAME COMMAND ...` starts one, and
# `finish` waits for all, tells what each said in the order in which they began, and fails with the
# names of those that failed. venv.sh has `say` and `fail`.

begun=() pids=()
said="$(mktemp -d)"
# What is left over when the script ends early is ended too.
trap 'kill "${pids[@]}" 2> /dev/null || true; rm -rf "$said"' EXIT

begin() {
  "${@:2}" > "$said/${#begun[@]}" 2>&1 &
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
