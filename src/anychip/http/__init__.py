"""What every HTTP front end shares: the listening end, keys, errors, records, passing on."""
