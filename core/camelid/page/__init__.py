"""Python side of the web page, run by its worker in Pyodide.

`model.py` answers the page's calls, `answer.py` and `records.py` send events and results, `snapshot.py`
renews a restored interpreter. The glass box: `glass.py` (plan, kernels, cache), `op_times.py`, `parity.py`.
"""
