"""The measured programs. Where two libraries share an API, the library's name is an argument and
the program is the same.
"""
