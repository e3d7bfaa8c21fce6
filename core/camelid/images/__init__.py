"""Images of requests: decoded with limits, resized as a model's image processor does, cut into patches."""
