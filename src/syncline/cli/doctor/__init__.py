"""`syncline doctor`: check this machine or every node of a cluster, and print remedies.

Files in the order of the data flow: `findings` (results as plain values), `probe` (collects them
on one node; `torch_probe` is the part that needs torch), `node_probes` (the probes of all nodes),
`examination` (asks the probes), `checks` (pure: findings to lines and remedies), `command` (prints
the lines).
"""
