"""Models named by a hub's id: fetched once by a process of its own, kept in the hub's cache."""
