"""The parts of ``./run bench reliability``: each tries to make the library fail in a way of its own."""
