"""Writing ahead: WAL segments (KIP-1163) as bytes (`segment`), and the buffer that fills them (`buffer`)."""
