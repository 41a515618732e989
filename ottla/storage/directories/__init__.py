"""The entries of `log.dirs`: their owner, their content, and how logs are opened and closed in them."""
