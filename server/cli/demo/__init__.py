"""The demo: workers and tasks on a board, one worker is killed, and its task goes back."""
