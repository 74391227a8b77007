"""The processor itself: native kernels, compiled on first use; numpy where there is no compiler."""
