"""The entries of `log.dirs`: whose they are, what lives there, how logs are opened in them and closed."""
