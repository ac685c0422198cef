"""Studies: images, texts and earlier studies of patients, put together from tables."""
