"""Reading whatever servers send."""
