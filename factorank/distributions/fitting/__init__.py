"""Maximum likelihood for the classical laws; every fit reports on itself in ``law.report``.

Fits compute in float64 on the CPU, whatever device the rankings are on; the law comes back on that device.
"""
