"""What a chip needs whose vendor gives C libraries; only chips use it, and it names none.

driver.py          what a chip writes of its runtime: one queue, memory, copies
stream.py          the queue over it: what was launched, late errors, waits with a bound
blocks.py          device memory handed out: a pool by size class, large blocks exactly
memory.py          the contract's memory over both: lengths, order, fill, statistics
errors.py          one table of the codes of all libraries; library.py: their functions, declared
calls.py           a contract call as one C struct (native/shim.h); the chip writes the shim
implementations.py the operators' table from a file of rows
weights.py         dense row-major weights
management.py      libraries in the form of NVML; telemetry.py: their readings
communicator.py    collectives with one context a rank
registration.py    the chip class to derive from; machine.py: what else tells of cards
sdk.py             where an SDK is found, by its form.py, places.py and named.py; build.py: what is
                   installed, and the shim, by headers.py, versions.py and guesses.py
table.py           tab-separated files
dtypes.py          element types as numpy has them

A chip keeps the vendor's names, its C functions, its options, and what its calls do not cover.
"""
