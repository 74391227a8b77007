"""The chip pebble: four files over `anychip.contract`, and C kernels."""
