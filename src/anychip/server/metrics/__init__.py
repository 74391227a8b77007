"""The figures of /metrics: what there is (`catalogue`), and who fills it in."""
