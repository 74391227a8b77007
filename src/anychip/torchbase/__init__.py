"""Memory, queue, operators and weights for any chip that has a torch device; only chips use it.

registration.py    the chip class to derive from; imports torch only when a device is opened
device.py          a torch device and what its module tells: waits, memory numbers
memory.py          buffers are byte tensors; views.py makes a torch view of a contract tensor
queue.py           launches, late errors, waits
weights.py         dense row-major weights
implementations.py the operator table
kernel.py          what a kernel is; primitives.py, ordering.py, network.py, attention.py and
                   sampling.py hold them

No result is promised to be independent of the number of rows: torch's matrix products are not.
"""
