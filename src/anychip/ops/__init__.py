"""The operator catalogue at work: oracle, recipes, tracing, binding, execution, checking."""
