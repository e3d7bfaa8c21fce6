"""Learning of a loaded model beside its requests: answers of its base, and runs of training and the gate."""
