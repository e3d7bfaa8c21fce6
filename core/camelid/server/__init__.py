"""HTTP servers: the web page's static server. Modules import their extra's libraries on import."""
