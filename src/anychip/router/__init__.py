"""One endpoint over several servers: who answers a call, and what is told of it."""
