"""The dynamic programmes that condition factorized laws, one for each code."""
