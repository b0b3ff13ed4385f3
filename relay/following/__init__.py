"""Following: a log that another process writes is read on and on, in place of writing it."""
