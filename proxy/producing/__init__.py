"""One Produce with diskless topics: its classic and its diskless part, and the merged answer."""
