"""Training data, training, grading and export of cria, the tiny chat model that ships with Camelid."""
