"""Which tokens run in the next step and where their KV lives: integers in, integers out."""
