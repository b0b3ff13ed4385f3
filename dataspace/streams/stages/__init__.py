"""What a stream is: marks, the protocol of read, peek and abort, and the base of every stage."""
