"""Consumer groups as a member sees them: joining, sharing out partitions, committing, over both of Kafka's protocols.

Reading order: `subscription` (what is wanted), `assignors` (who gets what; pure), `poll_gate` and `listeners` (when the
program hears of it), `coordinator` (the broker to ask), `commits` and `start_positions` (offsets), `classic` and
`consumer_protocol` (the two ways to be a member), `participation` (all of it, as the Consumer uses it).
"""
