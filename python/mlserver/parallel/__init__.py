"""The errors of workers. The server itself runs and supervises the workers."""
