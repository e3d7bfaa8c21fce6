"""Parts that several backends share."""
