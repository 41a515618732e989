"""The server: the only home of asyncio on the server's side."""
