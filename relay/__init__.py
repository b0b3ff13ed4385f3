"""The relay: what leaves a dataspace, live or from the log, with credit."""
