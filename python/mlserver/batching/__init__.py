"""The errors of batching. The server itself does the batching."""
