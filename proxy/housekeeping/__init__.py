"""Work that one proxy does for all, in the background: retention, and objects that nobody needs any more."""
