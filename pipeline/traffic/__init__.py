"""What the proxies moved, between which racks, what it cost and what it saved: from the rollups that they write.

`reading` gets rollups from object storage, `table` sums them up, `costs` puts prices on them, `report`, `output` and
`picture` show them. The rollups themselves are `proxy.accounting.rollups`.
"""
