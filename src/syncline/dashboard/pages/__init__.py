"""What is at each address. `view` is what a page of a run is given; `routes` says which page
answers where.

Pages build their elements once, in the constructor, and change them in `update()`; they hold no
state of other visitors.
"""
