"""A backend that counts ops and computes nothing."""
