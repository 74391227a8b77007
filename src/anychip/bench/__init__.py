"""Measurements that anyone can repeat: regress; more to come."""
