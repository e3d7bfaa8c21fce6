"""Python side of the web page, run by its worker in Pyodide."""
