"""What waits: trio's primitives under trio, anyio's under asyncio."""
