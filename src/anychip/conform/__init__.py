"""The proof that a chip keeps the contract: one file a layer, named as the contract's are."""
