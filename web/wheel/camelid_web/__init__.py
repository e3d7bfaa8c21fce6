"""The built page of Camelid, in the folder `site`; `camelid web` serves and exports it."""
