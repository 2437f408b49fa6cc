"""A cluster of three racks; the third rack has no broker at first, and loses it in the end."""
