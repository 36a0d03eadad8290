"""From what a program asked for to what is executed: pure functions on immutable nodes.

Files, in the order in which a plan goes through them: `nodes` (what there is), `facts` (what is
known of a plan without running it), `signature` (its digest), `seeds` (where its random numbers
come from), `rules` (what makes it cheaper; `filters` and `pruning` are the two larger ones),
`reads` (how many read tasks there are), `fusion` (which nodes share tasks), `exchanges` (all to
all), `lowering` (the stages that are executed), `explain` (all of that for people).
"""
