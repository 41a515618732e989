"""Request templates: answers to Produce and Fetch requests that look like those before."""
