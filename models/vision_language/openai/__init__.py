"""Models behind a server that speaks chat completions: the model, its requests, and the client that repeats them."""
