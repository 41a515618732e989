"""A web console: a page on a loopback address that shows topics, records, groups and the broker, by the bundled client.

It is a client like any other. It has the rights of the user that it logs in as, works with Apache Kafka too, and takes
nothing from a broker's event loop (docs/decisions/the-console-is-a-client.md). It knows neither the broker's code nor
the command line.

    page/            HTML, CSS and JavaScript as they are sent; values from the cluster are put in as text only
    guard.py         which requests are answered: the token, the host, the origin
    routes.py        which function answers a path, and errors as one line
    clients.py       the Admin, the Producer and the consumers, connected when they are first needed
    the others       what the page shows: topics, records, the live tail, groups, the broker; and writing a record
"""
