"""The records that Kafka itself writes to its internal logs. Pure.

``metadata`` holds the records of ``__cluster_metadata-0``, ``control`` the values of that log's control records,
``group`` the records of ``__consumer_offsets``, ``transaction`` those of ``__transaction_state``.
"""
