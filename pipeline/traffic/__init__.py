"""The traffic report: bytes between racks, their cost, and the savings, from the rollups that the proxies write.

`reading` gets rollups from object storage, `table` sums them up, `costs` puts prices on them, `report`, `output` and
`picture` show them. The rollups themselves are `proxy.accounting.rollups`.
"""
