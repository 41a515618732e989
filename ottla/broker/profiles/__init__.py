"""Which broker this one is to its clients: whose versions of the APIs and features it shows."""
