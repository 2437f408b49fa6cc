"""One Fetch that the proxy answers itself: its sources, the rounds in which they are asked, and the merged answer."""
