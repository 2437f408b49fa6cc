"""AWS: the credentials of its usual chain, and requests that are signed with them."""
