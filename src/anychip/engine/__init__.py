"""The engine: one process, one thread: plan, run, commit; and the client that talks to it."""
