"""The strict chip: a device in software that forgives nothing, to test the core against."""
