"""Simulators that act themselves and talk to an algorithm over a socket.

Files: `rllink` (messages), `message_server` (sockets of the algorithm), `policy_client` (the
simulator's side), `policy_server_input` (the address, as older programs give it), `external_env`
(simulators in the algorithm's process).
"""
