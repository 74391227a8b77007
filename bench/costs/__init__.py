"""The parts of `bench/step_costs.py`: the engine's steps, the machine's limits, tables, plots."""
