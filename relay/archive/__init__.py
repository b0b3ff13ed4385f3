"""The archive: sealed epochs of a log in a store of objects, beyond what the daemon keeps."""
