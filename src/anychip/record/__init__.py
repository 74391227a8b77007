"""The record of a server's requests: JSON lines, the same whoever writes or reads them."""
