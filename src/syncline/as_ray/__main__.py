"""`python -m syncline.as_ray`: run a program that imports `ray` with syncline."""

import sys

from syncline.as_ray import program

if __name__ == "__main__":
    sys.exit(program.main(sys.argv[1:]))
