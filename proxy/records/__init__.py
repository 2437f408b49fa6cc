"""Record batches: headers, checked and patched, and the compression codecs."""
