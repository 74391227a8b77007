"""Any device that torch has; torchbase does the work."""
