"""The hardware boundary, whole: a chip imports this package and nothing else of the core.

registration.py  who the chip is, what it can do, how it is opened
execution.py     one ordered queue a device
operators.py     which implementation serves an operator; signature.py and catalogue/: what each is
memory.py        allocate, free, copy, info; pool.py is a pool that a chip may use
weights.py       packing a weight once at load; cache.py where keys and values lie
build.py         required libraries and kernels; compile.py is a compiler cache that a chip may use
host.py          what the system says about host memory, for chips that live in it
errors.py        every error says which layer produced it
optional.py      telemetry, communicator, capture: empty slots that a chip may fill
"""
