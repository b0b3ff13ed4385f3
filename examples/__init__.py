"""Programs that use a dataspace, run from a checkout: not part of what is installed."""
