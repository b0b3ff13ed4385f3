"""Groups: streams of work that are divided among members, as state without a clock or a socket."""
