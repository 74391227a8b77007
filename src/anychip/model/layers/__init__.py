"""Parts of networks that families share, as functions over operators."""
