"""ACLs: which client may do what with which resource. Kafka's `StandardAuthorizer`."""
