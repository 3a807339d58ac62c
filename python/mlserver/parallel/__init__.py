"""Workers, which the server runs and watches; only their errors are here."""
