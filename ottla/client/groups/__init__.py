"""A member's side of consumer groups: joining, assigning partitions, committing, in both of Kafka's protocols.

Reading order: `subscription` (the wanted topics), `assignors` (the assignment; pure), `poll_gate` and `listeners` (when
the program is notified), `ottla.client.coordinator` (the broker to ask), `commits` and `start_positions` (offsets),
`classic` and `consumer_protocol` (the two kinds of members), `participation` (all of it, for the Consumer).
"""
