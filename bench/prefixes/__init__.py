"""A trace of requests that share prompt blocks, and its replay through the scheduler."""
