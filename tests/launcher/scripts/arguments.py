"""Arguments, with those that a launcher might take for its own."""

import argparse
import os

parser = argparse.ArgumentParser()
parser.add_argument("--nnodes", type=int)
parser.add_argument("-n", type=int)
parser.add_argument("--name")
parser.add_argument("rest", nargs="*")
print(f"[{os.environ['RANK']}] {parser.parse_args()}")
