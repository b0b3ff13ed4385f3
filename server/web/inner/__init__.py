"""Sessions within the process: how a request over HTTP is a client like any other."""
