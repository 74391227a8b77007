"""Folders whose linears are quantized: one file a scheme, told by config.json's own words."""
