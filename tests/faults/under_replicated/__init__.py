"""A cluster of three racks, of which the third one has no broker at first, and loses it in the end."""
