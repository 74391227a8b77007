"""The figures of the router's /metrics: what there is (`catalogue`), and who counts it."""
