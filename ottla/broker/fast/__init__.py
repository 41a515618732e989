"""Request templates: the fast path for Produce and Fetch requests that look like earlier ones."""
