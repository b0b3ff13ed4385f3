"""Groups: streams of work that are divided among members, which are streams of sessions."""
