"""What an observation does with its epochs: values become epochs, and epochs a state."""
