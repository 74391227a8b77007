"""Kunlun cards (P800, R200) through the vendor's C libraries."""
