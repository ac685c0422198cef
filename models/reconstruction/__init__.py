"""Images from k-space."""
