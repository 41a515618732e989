"""Share groups' records (KIP-932): what is delivered to which member, acknowledged, and delivered again.

    ShareFetch, ShareAcknowledge -> session -> share partition -> record in `__share_group_state` -> reply

A *share partition* is a partition as one share group reads it. The members of share groups are the group coordinator's
(`broker/groups`); this room knows groups by their ids only.
"""
