"""`syncline doctor`: examines this machine or every node of a cluster, and names a remedy for what
is wrong.

In the order in which facts flow: `facts` (what can be found out), `probe` (finds it out, on the
node that it is about; `torch_probe` the part that needs torch), `team` (the nodes, and how they are
asked), `gather` (asks, and puts the answers together), `judge` (pure: facts become lines and
remedies), `command` (the lines on the terminal).
"""
