"""The commands about archives."""
