"""A plan's way onto the device: index arrays, programs, sampling; weights and cache memory."""
