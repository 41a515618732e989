"""The process that Spark starts: it has another one forked (`kit/forked_python.py`), and ends with it.

It runs without site-packages, and imports nothing that takes long.
"""

import json
import os
import select
import socket
import sys

with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
    server.connect(sys.argv[1])
    request = {"arguments": sys.argv[2:], "environment": dict(os.environ), "directory": os.getcwd()}
    socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2])
    process = int(server.recv(100))
for stream in (0, 1, 2):
    os.close(stream)  # the other one's alone
try:
    handle = os.pidfd_open(process)
except ProcessLookupError:  # it has ended already
    os._exit(0)
select.select([handle], [], [])
os._exit(0)
