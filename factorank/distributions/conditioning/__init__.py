"""Laws given the relative order of some items, a file for each way to condition.

``rules`` chooses among them: closed forms (``uniform``, ``plackett_luce``), dynamic programming
(``factorized``), components (``mixture``), a list of all orders (``enumeration``), AMP (``approximate``) and
rejection.
"""
