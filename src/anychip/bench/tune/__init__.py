"""Which flags serve a trace best on a chip: what is varied, run, judged and kept."""
