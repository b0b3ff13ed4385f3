"""The kernel: one space, whose turns become claims, epochs and changes; pure."""
