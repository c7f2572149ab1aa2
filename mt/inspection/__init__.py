"""What happens inside a translation, as JSON, as a page and as pictures."""
