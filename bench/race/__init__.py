"""The parts of `bench/peers.py`: workloads, servers, the client, figures, tables."""
