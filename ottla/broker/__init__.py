"""The server: the only package on the server's side that uses asyncio."""
